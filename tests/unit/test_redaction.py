"""What is redacted by default, and what looks like it and stays."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from everturn.errors import InvalidFile, Refused
from everturn.evals import PATTERNS, CaseCall, CaseInputs, CaseStep, RecordedCase, redact_case
from everturn.evals.case_files import as_yaml, read_cases, write_cases
from everturn.evals.cases import CaseFacts
from everturn.evals.redaction import make_redactor

EVERYTHING = make_redactor(PATTERNS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jane.doe+x@mail.example.com, please", "[email], please"),
        ("a@b.c+d@e.f, a@b@c.d @x.y a@b", "[email][email], a@[email] @x.y a@b"),
        ("4111 1111 1111 1111", "[card]"),
        ("4111-1111-1111-1112", "4111-1111-1111-1112"),  # its check digit is wrong
        ("DE89 3704 0044 0532 0130 00", "[iban]"),
        ("DE88 3704 0044 0532 0130 00", "DE88 3704 0044 0532 0130 00"),
        ("call +49 (30) 901820-0", "call [phone]"),
        ("order 81-2345-678 of 2026-11-27", "order 81-2345-678 of 2026-11-27"),
        ("from 192.168.0.17", "from [ip]"),
        ("version 1.2.3.4.5", "version 1.2.3.4.5"),
    ],
)
def test_only_what_is_one_is_redacted(text: str, expected: str) -> None:
    assert EVERYTHING(text) == expected


LONG = 300_000
"""Characters: such as of a file in Base64."""


@pytest.mark.timeout(30)  # a search that begins anew at each character takes minutes; this one, less than a second
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(
    "part", ["x", "1", "1.", "a.", "a@", "a@b.", "AB12 ", "AB12", "+1 ", "+", "1-", "9+/a", "+1()", "-", "255."]
)
def test_a_long_text_is_read_once(name: str, part: str) -> None:
    text = part * (LONG // len(part))
    redact = make_redactor([name])
    for long_text in (text, f"a@{text}"):
        assert redact(f"{long_text} jane.doe").endswith("jane.doe")


def test_nothing_of_a_case_is_passed_over() -> None:
    secret = "jane@example.com"
    call = CaseCall(
        tool="pay",
        arguments={"to": [{secret: secret}], "card": 4111111111111111, "ok": True},
        decision="edited",
        reason=secret,
        edited_to={"to": secret},
        result=[{"kind": "document", "url": f"https://x.example/{secret}", "name": secret}],
    )
    steps = (CaseStep(user=secret), CaseStep(assistant=secret, calls=(call,)))
    case = RecordedCase(name=secret, inputs=CaseInputs(conversation=f"of-{secret}", agent="clerk", transcript=steps))
    written = as_yaml("x", [redact_case(case, EVERYTHING)])
    assert "jane" not in written
    assert "4111" not in written
    assert "conversation: sha256:" in written
    with pytest.raises(Refused, match="no pattern 'emial'"):
        make_redactor(["emial"])
    with pytest.raises(Refused, match="a value of type NoneType"):
        redact_case(case, lambda text: None)


def test_odd_texts_come_back_from_the_file_as_they_were(tmp_path: Path) -> None:
    odd = ["no", "2026-11-27", " a\n b \n", "tab\there\n", "\u2028 \x85 \x00 ünï 🎉", "a: b # c", "", "'\"\\", "1e3"]
    odd += ["\x85", "one\x85line\nand another"]
    steps = [CaseStep(user=text) for text in odd]
    case = RecordedCase(name="odd", inputs=CaseInputs(conversation="odd", agent="clerk", transcript=tuple(steps)))
    write_cases(tmp_path, [case])
    assert read_cases(tmp_path) == [case]
    half = case.model_copy(update={"inputs": CaseInputs(conversation="half", agent="\ud800", transcript=())})
    write_cases(tmp_path, [half])
    assert [read.inputs.agent for read in read_cases(tmp_path / "half.yaml")] == ["\ufffd"]


def test_a_full_disk_leaves_a_file_that_the_next_export_can_read(tmp_path: Path) -> None:
    case = RecordedCase(name="full", inputs=CaseInputs(conversation="full", agent="clerk", transcript=()))
    [file] = write_cases(tmp_path, [case])
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size // 2, most[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_cases(tmp_path, [case.model_copy(update={"metadata": CaseFacts(labels=("denied",))})])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert read_cases(tmp_path) == [case]


@pytest.mark.parametrize("number", [".nan", "-.inf", "1.0e+999"])
def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path, number: str) -> None:
    call = CaseCall(tool="pay", arguments={"cents": 5})
    steps = (CaseStep(user="Pay"), CaseStep(assistant="", calls=(call,)))
    case = RecordedCase(name="odd", inputs=CaseInputs(conversation="odd", agent="clerk", transcript=steps))
    [file] = write_cases(tmp_path, [case])
    file.write_text(file.read_text().replace("cents: 5", f"cents: {number}"))
    with pytest.raises(InvalidFile, match=r"arguments\.cents is"):
        read_cases(tmp_path)
