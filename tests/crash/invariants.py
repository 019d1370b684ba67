"""What has to be true of every conversation, whatever was killed. Each that is not is a sentence."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import isclose
from typing import TYPE_CHECKING

from everturn import Model
from everturn.lost_workers.poison_calls import MOST_OF_A_TOOL
from everturn.prices import cost_usd
from everturn.records import ToolCall, ToolResult, Usage
from tests.crash.cast import BATCHED_MODEL, teller
from tests.crash.evidence import Evidence
from tests.crash.people import answer_to
from tests.crash.resumes import late

if TYPE_CHECKING:
    from tests.crash.storm import Storm

CLOCKS_SECONDS = 0.05
"""The server's stamps and ours, and the way of a request."""

RECEIPT = re.compile(r"receipt (\d+) of (\S+?)\.*$")
USAGE = Usage(input_tokens=10, output_tokens=5)
"""Of each reply in a batch."""
TOOLS = {tool.name: tool for tool in teller.tools}


def broken(storm: Storm) -> list[str]:
    """The invariants that do not hold, in words; empty where all is well."""
    problems = [
        f"conversation {storm.stories[number].id}: has not ended: {where}" for number, where in storm.stuck.items()
    ]
    for evidence in storm.evidence:
        for rule in RULES:
            problems += [f"conversation {evidence.story.id}: {what}" for what in rule(evidence)]
    problems += [f"a collector of batches: {problem}" for problem in storm.collectors_problems]
    return [*problems, *late(storm)]


def _workflow_tasks(evidence: Evidence) -> Iterator[str]:
    for failure in evidence.task_failures:
        yield f"a workflow task failed: {failure}"
    if evidence.divergence:
        yield f"its history does not replay: {evidence.divergence}"


def _model_turns(evidence: Evidence) -> Iterator[str]:
    """No completed model call is asked again."""
    for turn, runs in evidence.turns().items():
        completed = [run for run in runs if run.how == "completed"]
        if len(completed) != 1:
            yield f"turn {turn} has {len(completed)} completed model calls, not one"
        asked = [one for one in evidence.asked if one.turn == turn - 1]
        tries = sum(run.tries for run in runs)
        if not asked:
            yield f"turn {turn} was completed, and the model never saw it"
        taken = [one for one in asked if not one.served.startswith("429")]  # else it is asked again in the same try
        if len(taken) > tries:
            yield f"turn {turn} was asked {len(taken)} times in {tries} tries"
        for run in completed:
            late = max((one.at for one in asked), default=0) - (run.ended_at or 0)
            if late > CLOCKS_SECONDS:
                yield f"turn {turn} was asked again {late:.2f} s after its reply was recorded"


def _batches(evidence: Evidence) -> Iterator[str]:
    """Each turn of a batch is paid once for its reply, at half the price, and the reply is in the conversation."""
    if not evidence.story.is_batched:
        return
    paid = Counter(request.turn + 1 for request in evidence.asked if request.served == "reply")
    for turn, times in paid.items():
        if times > 1:
            yield f"turn {turn} of a batch was paid {times} times"
    replies = [message for message in evidence.transcript if message.role == "assistant"]
    for turn, (reply, scripted) in enumerate(zip(replies, evidence.story.turns, strict=False), 1):
        wanted = scripted.reply if isinstance(scripted.reply, str) else [item.name for item in scripted.reply]
        got = [call.name for call in reply.tool_calls] or reply.text
        if got != wanted:
            yield f"the batch's reply to turn {turn} is {got!r}, and was {wanted!r}"
    price = cost_usd(Model(BATCHED_MODEL), USAGE, details={"service_tier": "batch"})
    live = cost_usd(Model(BATCHED_MODEL), USAGE)
    if not price or not live or not isclose(price, live / 2):
        yield f"a reply costs {price} in a batch, and {live} without"
    elif not isclose(evidence.cost_usd or 0, price * len(replies)):
        yield f"its {len(replies)} replies cost {evidence.cost_usd}, and one costs {price}"


def _prompts(evidence: Evidence) -> Iterator[str]:
    """What the model was told once, it is told in every later request, in the same place."""
    longest: tuple[str, ...] = ()
    for one in sorted(evidence.asked, key=lambda one: (len(one.told), one.at)):
        if one.told[: len(longest)] != longest:
            yield f"a request with {one.turn} replies does not begin with the one before it"
        longest = one.told
    # On the wire, each result is a message of its own.
    said = sum(len(message.tool_results) or 1 for message in evidence.transcript)
    if len(longest) > said:
        yield f"the model was told {len(longest)} messages, and the transcript has {said}"


def _calls(evidence: Evidence) -> Iterator[str]:
    """Every call has one result, and it is the one that the ledger has."""
    calls = _all_calls(evidence)
    results: dict[str, list[ToolResult]] = {}
    for message in evidence.transcript:
        for result in message.tool_results:
            results.setdefault(result.call_id, []).append(result)
    if strays := results.keys() - {call.call_id for call in calls}:
        yield f"results without a call: {sorted(strays)}"
    for call_id, times in Counter(call.call_id for call in calls).items():
        if times > 1:
            yield f"call {call_id} is {times} times in the transcript"
    for asking, message in pairwise(evidence.transcript):
        told, wanted = [[one.call_id for one in some] for some in (message.tool_results, asking.tool_calls)]
        if told and wanted and told != wanted and sorted(told) == sorted(wanted):
            yield f"the calls {wanted} have their results in another order: {told}"
    for call in calls:
        match results.get(call.call_id, []):
            case [result]:
                yield from (f"{call.name} {call.call_id}: {what}" for what in _result(call, result, evidence))
            case found:
                yield f"{call.name} {call.call_id} has {len(found)} results, not one"
    if strays := evidence.effects.keys() - {call.call_id for call in calls}:
        yield f"effects of calls that there are not: {sorted(strays)}"
    said = [message.text for message in evidence.transcript if message.role == "user"]
    if sorted(said) != sorted(evidence.story.messages):
        yield f"the messages {evidence.story.messages} stand in the transcript as {said}"


def _result(call: ToolCall, result: ToolResult, evidence: Evidence) -> Iterator[str]:
    effects = evidence.effects.get(call.call_id, [])
    decision = result.decision
    if decision and decision.verdict == "answer":
        if result.text != answer_to(call.call_id):
            yield f"it was answered, and its result is {result.text[:200]!r}"
    elif decision and decision.verdict == "deny":
        if not result.is_error or ("did not run" in result.text and effects):
            yield f"it was denied, took effect {len(effects)} times, and its result is {result.text[:200]!r}"
    elif result.is_error and sum(run.tries for run in evidence.runs_of(call.call_id)) > MOST_OF_A_TOOL:
        pass  # lost with its workers, time and again: it is not run for ever
    elif not (found := RECEIPT.search(result.text)) or result.is_error:
        yield f"its result is none of the tool's: {result.text[:200]!r}"
    elif (int(found[1]), found[2]) not in {(effect.receipt, effect.key) for effect in effects}:
        yield f"its result is {found[0]!r}, and the ledger has {effects}"
    elif len(result.text) < int(str(call.arguments.get("size", 0))) and not (decision and decision.arguments):
        yield f"its result has {len(result.text)} characters of {call.arguments['size']}"


def _effects(evidence: Evidence) -> Iterator[str]:
    """`read` and `idempotent`: at least once for each run, and once a try. `once`: at most once for each approval. A
    run whose worker was lost before it began is sent again by itself, and took no effect."""
    for call in _all_calls(evidence):
        tool, runs = TOOLS[call.name], [run for run in evidence.runs_of(call.call_id) if run.how != "never began"]
        effects = evidence.effects.get(call.call_id, [])
        allowed = len(evidence.approvals.get(call.call_id, ())) + (not tool.needs_approval)
        tries = sum(run.tries for run in runs)
        if len(runs) > allowed:
            yield f"{call.name} {call.call_id} was started {len(runs)} times, and {allowed} were allowed"
        if tool.effect == "once" and len(effects) > allowed:
            yield f"{call.name} {call.call_id} took effect {len(effects)} times, and {allowed} were allowed"
        if len(effects) > tries:
            yield f"{call.name} {call.call_id} took effect {len(effects)} times in {tries} tries"
        if tool.effect == "once" and any(run.tries > 1 for run in evidence.runs_of(call.call_id)):
            yield f"{call.name} {call.call_id} was tried again by itself"
        if tool.effect != "once" and any(run.how == "completed" for run in runs) and not effects:
            # An edit that does not fit fails its run; whatever completed has taken effect.
            yield f"{call.name} {call.call_id} ended without any effect"


def _arguments(evidence: Evidence) -> Iterator[str]:
    """A tool runs with the arguments that the model gave, or with those of a person who approved the call."""
    for call in _all_calls(evidence):
        edits = evidence.approvals.get(call.call_id, ())
        wanted = [call.arguments if edit is None else edit for edit in edits]
        wanted += [] if TOOLS[call.name].needs_approval else [call.arguments]
        for effect in evidence.effects.get(call.call_id, ()):
            if (ran_with := json.loads(effect.arguments)) not in wanted:
                yield f"{call.name} {call.call_id} ran with {ran_with}, and was to run with {wanted}"


def _keys(evidence: Evidence) -> Iterator[str]:
    """A call's key is the same in every try, and holds the first run of the conversation that asked for it."""
    for call_id, effects in evidence.effects.items():
        chains = {evidence.chains[run.run_id] for run in evidence.runs_of(call_id)}
        wanted = {f"{evidence.story.id}:{chain}:{call_id}" for chain in chains}
        if (keys := {effect.key for effect in effects}) != wanted:
            yield f"{call_id} took effect under the keys {sorted(keys)}, not {sorted(wanted)}"


def _approved(evidence: Evidence) -> Iterator[str]:
    """A call that was approved has come to something."""
    told = {result.call_id for message in evidence.transcript for result in message.tool_results}
    for call_id in evidence.approvals.keys() - told:
        if not evidence.runs_of(call_id):
            yield f"{call_id} was approved, and nothing came of it"


def _all_calls(evidence: Evidence) -> list[ToolCall]:
    return [call for message in evidence.transcript for call in message.tool_calls]


RULES = (_workflow_tasks, _model_turns, _batches, _prompts, _calls, _effects, _arguments, _keys, _approved)
