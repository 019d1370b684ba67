"""`make changed` runs the tests of what one changed."""

from __future__ import annotations

import pytest

from tests.changed import ALWAYS, MOST_OF_A_MODULE, OF_WORKFLOWS, ROOT, files_for


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("everturn/settings.py", "tests/unit/test_settings.py"),
        ("everturn/providers/rate_limits/rate_limiter.py", "tests/unit/test_rate_limiter.py"),
        ("everturn/providers/openai_chat/reply.py", "tests/providers/test_openai_chat.py"),
        ("tests/unit/test_changed.py", "tests/unit/test_changed.py"),
        ("everturn/workflows/conversation.py", "tests/replay/test_histories.py"),
        ("everturn/records.py", "tests/unit/test_determinism.py"),  # workflows reach it
    ],
)
def test_a_changed_file_has_its_tests(changed: str, test: str) -> None:
    files = files_for([changed])
    assert test in files
    assert len(files) <= 2 * MOST_OF_A_MODULE + len(OF_WORKFLOWS) + len(ALWAYS)
    assert all((ROOT / file).exists() for file in files)


def test_what_is_no_python_of_ours_has_none() -> None:
    assert files_for(["README.md", "everturn/web/page.css"]) == []
