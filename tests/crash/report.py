"""The crash test's report: what happened to the conversations, and how soon they went on."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from tests.crash.resumes import resumes

if TYPE_CHECKING:
    from tests.crash.storm import Storm

ROUGH = 10


def report(storm: Storm) -> str:
    plan, evidence = storm.plan, storm.evidence
    requests = storm.author.asked
    faults = Counter(request.served for request in requests if request.served != "reply")
    turns = sum(len(one.turns()) for one in evidence)
    tools = sum(run.name != "call_model" for one in evidence for run in one.activities)
    tries = sum(run.tries - 1 for one in evidence for run in one.activities if run.tries > 1)
    resumed = resumes(storm)
    seconds = [one.seconds for one in resumed]
    replaced = [one.seconds for one in resumed if one.kill.replaced]
    undisturbed = [one.undisturbed for one in resumed]
    handed_on = [inbox for one in evidence for inbox in one.handed_on]
    lines = [
        f"seed {plan.seed}",
        f"{len(storm.ended)} of {plan.conversations} conversations ended, in {storm.seconds:.0f} s: {turns} turns, "
        f"{tools} tool runs, {sum(len(one.effects) for one in evidence)} calls with effects, "
        f"{sum(one.events for one in evidence)} events in {sum(len(one.runs) for one in evidence)} runs",
        f"{len(storm.kills)} workers killed, with {sum(len(kill.hits) for kill in storm.kills)} activities in hand",
        f"{len(storm.restarts)} server restarts"
        + _of([restart.answered - restart.began for restart in storm.restarts], ", until it answered: ")
        + f"; {storm.refused} workers found no server when they started",
        f"{tries} retries of activities; {sum(one.lost for one in evidence)} lost tries recovered, and "
        f"{sum(one.task_timeouts for one in evidence)} workflow tasks taken over",
        "time to resume after a worker's kill: " + (_of(seconds) or "no kill hit anything"),
        "  of those, where a worker was started on the same machine at once: " + (_of(replaced) or "none"),
        f"  since the last that happened to it: {_of(undisturbed) or 'none'}; {plan.resume:g} s are allowed",
        f"{len(handed_on)} runs went on as new ones, {sum(map(bool, handed_on))} of them with messages in the inbox",
        f"{len(storm.batches.batches)} batches with {storm.batches.paid} turns, of "
        f"{sum(story.is_batched for story in storm.stories)} conversations",
        f"{storm.clients_killed} client processes killed, with {storm.people_killed} people in them; {storm.vanished} "
        "more clients vanished",
        f"{storm.proxy.dropped + storm.batch_proxy.dropped} connections dropped; faults of the model server: "
        f"{_counts(faults)}",
        f"people: {_counts(storm.people.told)}",
    ]
    if storm.people.rough:
        lines.append(f"errors that are not everturn's own: {_counts(storm.people.rough)}")
    return "\n".join(lines)


def _of(seconds: list[float], before: str = "") -> str:
    if not seconds:
        return ""
    return f"{before}median {median(seconds):.1f} s, worst {max(seconds):.1f} s ({len(seconds)} cases)"


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{times} {what}" for what, times in counted.most_common(ROUGH)) or "none"
