"""The messages in a model turn's delta and in an outcome's tail: as many as fit, and none twice."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from everturn.carryover import mark_of
from everturn.payloads import ModelRequest
from everturn.records import Message, results_in
from everturn.size_estimates import how_many_fit, is_larger
from everturn.sizes import INLINE_BYTES, MAX_DELTA_BYTES, MAX_INBOX_BYTES, size_of
from everturn.state import State
from everturn.text.shortening import shortened
from everturn.truncation import cut_messages, without_content


def next_delta(state: State) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The messages since the last reply, and the ids of the calls whose results they leave out for their size."""
    return _fit_messages(state, state.unseen.messages, room=MAX_DELTA_BYTES)


def next_request(state: State, *, summarise: bool) -> ModelRequest:
    """The next request to the agent in charge."""
    delta: tuple[Message, ...] = ()
    named: tuple[str, ...] = ()
    if not summarise:
        delta, named = next_delta(state)
    return ModelRequest(
        agent=state.agent,
        signed=state.in_charge.handed_on,
        asked=state.start.caller is not None,
        turn=state.turn,
        position=state.prefix.position,
        digest=state.prefix.digest,
        delta=delta,
        named=named,
        model=state.model.name or None,
        tools=state.tools,
        conclude=state.limit,
        view=state.view,
        summarise=summarise,
        calls_left=state.limits.calls_left(state.totals.tool_calls),
        ruled=any(rule.then != "approve" for rule in state.rules),
        budget=state.totals.budget,
        limits_mark=mark_of(state.facts.limits) if state.facts else "",
        **state.start.labels,
        **state.prompts.request_fields,
    )


def how_many_waiting_fit(state: State) -> int:
    """How many messages of the inbox fit into one model turn's payload: at least one, if there is any."""
    return max(1, how_many_fit(state.inbox.messages, MAX_INBOX_BYTES))


def last_reply(state: State, room: int) -> tuple[str, JsonValue]:
    """The last reply's text and output, cut to fit an outcome of this size."""
    if size_of(state.last_reply.text) + size_of(state.last_reply.output) <= room:
        return state.last_reply.text, state.last_reply.output
    # A cut output is useless, and the text says the same.
    return shortened(state.last_reply.text, max_bytes=room), None


def outcome_tail(state: State, *, room: int) -> tuple[Message, ...]:
    """What no model has seen, as an outcome can carry it beside its text and output: like a delta, but for what has no
    room at all."""
    sent, _ = _fit_messages(state, [*state.unseen.messages, *state.inbox.messages], room=max(0, room))
    return sent[: how_many_fit(sent, room)]


def _fit_messages(
    state: State, messages: Sequence[Message], *, room: int
) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    named = tuple(
        call_id
        for call_id, result in results_in(messages).items()
        if call_id in state.unseen.recorded and is_larger(result, INLINE_BYTES)
    )
    if named:
        messages = without_content(messages, named)
    return cut_messages(messages, room), named
