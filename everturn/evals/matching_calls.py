"""Which recorded call a call of the candidate's is, if several have the same tool and arguments."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.evals.recorded import RecordedCall


def choose_place(calls: Sequence[RecordedCall], places: Sequence[int], *, passed: int, times_spoken: int) -> int | None:
    """Which of several recorded calls, all the same, a candidate's call is: first of all one that comes after all that
    its earlier turns made (the last of these is at `passed`), made when people had spoken as often. So a call that a
    person denied, and approved after a look-up, is the approved one for a candidate that has looked up."""
    later = [place for place in places if place > passed]
    of_this_time = [place for place in places if calls[place].times_spoken == times_spoken]
    choices = [
        *(place for place in later if place in of_this_time),
        *(place for place in of_this_time if not calls[place].is_denied),
        *later,
        *places,
    ]
    return next(iter(choices), None)
