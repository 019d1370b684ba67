"""A tool's progress in a few words: a bar if it is a fraction, else the tool's own words."""

from __future__ import annotations

import json
import math
from typing import Any

from everturn.cli.render import one_line

BAR_CELLS = 10

_DONE = ("progress", "done", "current", "completed")
_OF = ("total", "of")
_WORDS = ("message", "description", "status", "step")


def progress_text(progress: Any, limit: int = 60) -> str:
    """`▰▰▰▰▱▱▱▱▱▱ 40 % packing` for 0.4, or for a done and a total; text as it is; anything else as JSON.

    A number counts as a fraction from 0 to 1 only if it is no integer: 1 may be the first of a thousand.
    """
    match progress:
        case None:
            return ""
        case str():
            return one_line(progress, limit)
        case float() if 0 <= progress <= 1:
            return _draw_bar(progress)
        case [done, total] if (share := _done_share(done, total)) is not None:
            return _draw_bar(share)
        case dict() if text := _facts_text(progress):
            return one_line(text, limit)
        case _:
            return one_line(json.dumps(progress, ensure_ascii=False), limit)


def _facts_text(facts: dict[str, Any]) -> str:
    done, total = (next((facts[key] for key in keys if key in facts), None) for keys in (_DONE, _OF))
    words = next((facts[key] for key in _WORDS if isinstance(facts.get(key), str)), "")
    if (share := _done_share(done, total)) is not None:
        return f"{_draw_bar(share)} {words}".rstrip()
    if total is None and isinstance(done, float) and 0 <= done <= 1:
        return f"{_draw_bar(done)} {words}".rstrip()
    if total is None and isinstance(done, int | float) and not isinstance(done, bool):
        return f"{words} {done:,}".lstrip()
    if done is not None:
        return ""
    return words


def _done_share(done: Any, total: Any) -> float | None:
    """The share that is done, from 0 to 1; None if the two values give none."""
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in (done, total)):
        return None
    if not math.isfinite(total) or total <= 0 or not 0 <= done <= total:
        return None
    share: float = done / total
    return share


def _draw_bar(share: float) -> str:
    full = math.floor(share * BAR_CELLS)
    return f"{'▰' * full}{'▱' * (BAR_CELLS - full)} {math.floor(share * 100)} %"
