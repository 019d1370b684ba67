"""How soon what a killed worker had in hand was taken up again, and by when it has to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.crash.evidence import resumed_at

if TYPE_CHECKING:
    from tests.crash.storm import Hit, Kill, Storm


@dataclass(frozen=True)
class Resume:
    """Of one activity that a kill hit."""

    kill: Kill
    hit: Hit
    seconds: float
    """Since the kill."""
    undisturbed: float
    """Since the last that happened to it: the kill, a later one, or the return of a server that was away."""

    def __str__(self) -> str:
        since_kill = f"{self.seconds:.1f} s after the kill"
        since_last = f"{self.undisturbed:.1f} s after the last that happened to it"
        return f"{self.hit.tool} of {self.hit.conversation} was taken up again {since_last} ({since_kill})"


def resumes(storm: Storm) -> list[Resume]:
    """Of every activity that a kill hit and that needed another hand."""
    by_id = {one.story.id: one for one in storm.evidence}
    found = []
    for kill in storm.kills:
        for hit in kill.hits:
            at = resumed_at(hit, kill.at, by_id[hit.conversation])
            if at is not None:
                found.append(Resume(kill, hit, at - kill.at, at - _last_trouble(storm, kill.at, at)))
    return found


def _last_trouble(storm: Storm, since: float, until: float) -> float:
    """A kill, or the end of the time without a server."""
    ends = [*(kill.at for kill in storm.kills), *(restart.answered for restart in storm.restarts)]
    return max((at for at in ends if since <= at <= until), default=since)


def late(storm: Storm) -> Iterator[str]:
    """What was taken up again later than the plan allows."""
    for resume in resumes(storm):
        if resume.undisturbed > storm.plan.resume:
            yield f"{resume}; {storm.plan.resume:g} s are allowed"
