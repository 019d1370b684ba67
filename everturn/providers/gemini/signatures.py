"""Gemini's signatures of calls, and what stands in for one.

Gemini 3 signs its thoughts, on the part that they led to. A part that Gemini made goes back with its signature, as it
came (`reply.py`, `request.py`). A call that another model made has none, and neither has one of an older Gemini.
"""

from __future__ import annotations

from typing import Any, Final

NO_SIGNATURE: Final = "skip_thought_signature_validator"
"""Replaces the signature of a call that Gemini did not make. Gemini 3 answers 400 to a first call without one."""


def with_signature(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of one reply, in which the first call has a signature: its own, or what stands in for it. Of several
    calls at once, Gemini signs the first, and requires that signature back."""
    first = next((place for place, part in enumerate(parts) if "functionCall" in part), None)
    if first is not None and "thoughtSignature" not in parts[first]:
        parts[first] = {**parts[first], "thoughtSignature": NO_SIGNATURE}
    return parts
