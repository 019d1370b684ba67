"""Takes personal data out of cases before they are written."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from everturn.errors import InvalidAgent, Refused
from everturn.evals.cases import CaseFacts, CaseInputs, RecordedCase, case_name
from everturn.guardrails import Pattern

Redactor = Callable[[str], str]
"""Returns the text without what must not leave. It gets texts, and numbers as texts."""

KEPT_AS_THEY_ARE: Final = frozenset(
    {
        "tool",
        "tools",
        "effect",
        "decision",
        "agent",
        "at_turn",
        "is_error",
        "labels",
        "status",
        "stop",
        "model",
        "ended_at",
    }
    | {"kind", "media_type", "conversation", "turn", "evaluators"}
)
"""Fields of a case that hold no words of a conversation. All others are redacted."""

HIDDEN: Final = "[withheld]"
"""What a Pattern that refuses puts in the place of what it finds."""

DIGEST: Final = "sha256:"
"""Begins the id of a conversation whose own id had to be redacted."""
ID_DIGEST_CHARS: Final = 24


def _hide_email(match: re.Match[str]) -> str:
    """The expression finds each word, with what makes it an address: a search for the @ alone would begin at each
    letter of a long word, and read on to its end."""
    return "[email]" if "@" in match[0] else match[0]


def _hide_card(match: re.Match[str]) -> str:
    """Only what can be the number of a card: by its check digit (Luhn, ISO/IEC 7812)."""
    digits = [int(digit) for digit in match[0] if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return match[0] if (sum(doubled) + sum(digits[-1::-2])) % 10 else "[card]"


def _hide_iban(match: re.Match[str]) -> str:
    """Only what can be an IBAN: by its check digits (ISO 7064, MOD 97-10)."""
    letters = match[0].replace(" ", "")
    number = int("".join(str(int(letter, 36)) for letter in letters[4:] + letters[:4]))
    return "[iban]" if number % 97 == 1 else match[0]


PATTERNS: Final[dict[str, Pattern]] = {
    "email": Pattern(r"[\w.+-]++(?:@[\w-]++(?:\.[\w-]+)+)?", redact=_hide_email),
    "iban": Pattern(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b", redact=_hide_iban),
    "card": Pattern(r"(?<!\d)\d(?:[ -]?\d){13,18}(?!\d)", redact=_hide_card),
    "phone": Pattern(r"(?<!\w)\+\d(?:[ ()/.-]{0,2}\d){7,14}(?!\w)", redact="[phone]"),
    "ip": Pattern(
        r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.])", redact="[ip]"
    ),
}
"""By their names: what is redacted if nothing else is asked for."""


def make_redactor(rules: Iterable[str | Pattern | Redactor]) -> Redactor:
    """One function of several: names of PATTERNS, guardrails' Patterns, functions. They run in this order. Raises
    Refused for an unknown name."""
    steps = [_redactor_of(rule) for rule in rules]

    def redact(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return redact


def _redactor_of(rule: str | Pattern | Redactor) -> Redactor:
    if isinstance(rule, str):
        if rule not in PATTERNS:
            raise Refused(
                f"There is no pattern {rule!r} to redact by.",
                cure=f"There are {', '.join(PATTERNS)}; or name a function: pii.py:NAME.",
            )
        rule = PATTERNS[rule]
    if isinstance(rule, Pattern):
        pattern = rule
        replacement = HIDDEN if rule.redact is None else rule.redact
        return lambda text: pattern.replace_matches(text, replacement)
    if not callable(rule):
        raise InvalidAgent(
            f"Texts can't be redacted by {rule!r}.", cure="Give a Pattern, or a function of a text that returns a text."
        )
    return rule


def redact_case(case: RecordedCase, redact: Redactor) -> RecordedCase:
    """The case without what `redact` takes out. An id that it would change becomes a digest."""
    inputs = CaseInputs.model_validate(_redacted(case.inputs.model_dump(mode="json"), redact))
    inputs = inputs.model_copy(update={"conversation": redact_id(case.inputs.conversation, redact)})
    return case.model_copy(
        update={
            "name": case_name(inputs.conversation, inputs.at_turn),
            "inputs": inputs,
            "metadata": CaseFacts.model_validate(_redacted(case.metadata.model_dump(mode="json"), redact)),
            "expected_output": _redacted_record(case.expected_output, redact),
        }
    )


def redact_id(conversation_id: str, redact: Redactor) -> str:
    """The id, or a digest of it if it holds what has to be redacted."""
    if conversation_id.startswith(DIGEST) or _call(redact, conversation_id) == conversation_id:
        return conversation_id
    return id_digest(conversation_id)


def id_digest(conversation_id: str) -> str:
    return DIGEST + hashlib.sha256(conversation_id.encode()).hexdigest()[:ID_DIGEST_CHARS]


R = TypeVar("R", bound=Any)


def _redacted_record(record: R, redact: Redactor) -> R:
    redacted: R = type(record).model_validate(_redacted(record.model_dump(mode="json"), redact))
    return redacted


def _redacted(value: Any, redact: Redactor, *, free: bool = False) -> Any:
    """`free`: within arguments, metadata and outputs, whose keys are anybody's."""
    if isinstance(value, dict):
        if free:
            return {_call(redact, key): _redacted(item, redact, free=True) for key, item in value.items()}
        return {key: _redacted_field(key, item, redact) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_redacted(item, redact, free=free) for item in value]
    if isinstance(value, str):
        return _call(redact, value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = str(value)
        return value if (written := _call(redact, text)) == text else written
    return value


def _redacted_field(key: str, value: Any, redact: Redactor) -> Any:
    if key in KEPT_AS_THEY_ARE:
        return value
    return _redacted(value, redact, free=key in ("arguments", "edited_to", "metadata", "output"))


def _call(redact: Redactor, text: str) -> str:
    redacted = redact(text)
    if not isinstance(redacted, str):
        raise Refused(
            f"The redactor returned a value of type {type(redacted).__name__} for a text.",
            cure="Return a text: the same one if there is nothing to take out.",
        )
    return redacted
