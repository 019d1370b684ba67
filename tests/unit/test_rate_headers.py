"""What providers say of their limits: as recorded, as documented, and as nobody should."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from everturn.providers.rate_limits.permits import Allowance
from everturn.providers.rate_limits.rate_headers import read_allowances

OPENAI = {
    "x-ratelimit-limit-requests": "15000",
    "x-ratelimit-remaining-requests": "14999",
    "x-ratelimit-reset-requests": "4ms",
    "x-ratelimit-limit-tokens": "40000000",
    "x-ratelimit-remaining-tokens": "39999493",
    "x-ratelimit-reset-tokens": "6m0s",
}
ANTHROPIC = {
    "date": "Sun, 05 Apr 2026 14:28:25 GMT",
    "anthropic-ratelimit-requests-limit": "20000",
    "anthropic-ratelimit-requests-remaining": "19999",
    "anthropic-ratelimit-requests-reset": "2026-04-05T14:28:55Z",
    "anthropic-ratelimit-output-tokens-limit": "800000",
    "anthropic-ratelimit-output-tokens-remaining": "700000",
    "anthropic-ratelimit-output-tokens-reset": "2026-04-05T14:28:26Z",
}


def test_openai_says_requests_and_tokens() -> None:
    assert read_allowances(OPENAI) == [
        Allowance("requests", 15_000, 14_999, 0.004),
        Allowance("tokens", 40_000_000, 39_999_493, 360.0),
    ]


def test_anthropic_says_times_which_are_compared_with_its_own_clock() -> None:
    assert read_allowances(ANTHROPIC, now=None) == [
        Allowance("requests", 20_000, 19_999, 30.0),
        Allowance("output_tokens", 800_000, 700_000, 1.0),
    ]
    late = datetime(2027, 1, 1, tzinfo=UTC)
    assert [allowance.reset for allowance in read_allowances(ANTHROPIC, now=late)] == [0.0, 0.0]


@pytest.mark.parametrize(
    "reset",
    ["", "soon", "-1s", "nan", "inf", "1e999", "9" * 400, "5x", "2026-13-77", "99999d", "1s" * 80],
)
def test_a_reset_that_is_none_counts_as_absent(reset: str) -> None:
    (allowance,) = read_allowances(
        {**{name: OPENAI[name] for name in list(OPENAI)[:2]}, "x-ratelimit-reset-requests": reset}
    )
    assert allowance.reset is None


@pytest.mark.parametrize("number", ["", "many", "-5", "nan", "inf", "1e30"])
def test_a_limit_that_is_none_counts_as_absent(number: str) -> None:
    assert read_allowances({"x-ratelimit-limit-requests": number, "x-ratelimit-remaining-requests": "1"}) == []
    assert read_allowances({"x-ratelimit-limit-requests": "5", "x-ratelimit-remaining-requests": number}) == []


def test_no_more_is_left_than_there_is() -> None:
    (allowance,) = read_allowances({"x-ratelimit-limit-tokens": "5", "x-ratelimit-remaining-tokens": "50"})
    assert allowance == Allowance("tokens", 5, 5, None)
