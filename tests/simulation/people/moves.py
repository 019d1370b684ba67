"""What people do in worlds that are about something: several things in one moment, the same thing twice, too early, too
late, or in another's place. See situations/ for who does what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payloads
from temporalio.service import RPCError

from everturn import names
from everturn.client.conversation import Conversation
from everturn.errors import Ended, NotFound, Refused, Unreachable
from everturn.payloads import WaitingCall
from everturn.sizes import MAX_INPUT_BYTES
from everturn.storage.data_converter import data_converter

if TYPE_CHECKING:
    from tests.simulation.people.people import Person
    from tests.simulation.temporal.server import Server

Sent = tuple[str, dict[str, Any]]
"""A signal's name and its payload; the name CANCEL stands for cancelling the workflow."""

CANCEL = "(cancel the workflow)"

POLICIES: tuple[tuple[dict[str, Any], ...], ...] = (
    (),
    ({"tool": "pay", "then": "deny"},),
    ({"tool": "refund", "then": "approve", "where": {"cents": {"at_most": 1_000}}},),
    ({"tool": "look", "then": "ask"}, {"tool": "note", "then": "deny", "reason": "no notes"}),
    ({"tool": "*", "then": "approve"}, {"tool": "gift", "then": "deny", "where": {"cents": {"above": 10}}}),
    ({"tool": "pay", "then": "ask"}, {"tool": "borrow", "then": "deny"}, {"tool": "peek", "then": "deny"}),
    ({"tool": "*", "then": "deny"},),
)
"""Rules that people set while a conversation goes on."""

CONDITIONS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"tool": "pay", "then": "ask", "where": {"cents": {"at_least": 6}}}, {"tool": "pay", "then": "approve"}),
    ({"tool": "refund", "then": "approve", "where": {"cents": {"below": 3, "above": 1}}},),
    ({"tool": "*", "then": "deny", "where": {"cents": {"equals": 7}}}, {"tool": "refund", "then": "approve"}),
    ({"tool": "pay", "then": "deny", "where": {"cents": {"one_of": [3, 5, 8, 11]}}},),
    ({"tool": "refund", "then": "approve", "where": {"order_id": {"starts_with": "1"}}},),
    ({"tool": "refund", "then": "deny", "where": {"order_id": {"equals": 4}}},),
    ({"tool": "note", "then": "deny", "where": {"text": {"starts_with": "n1"}, "cents": {"above": 0}}},),
    ({"tool": "gift", "then": "approve", "where": {"cents.of": {"above": 1}}},),
    ({"tool": "gift", "then": "approve"}, {"tool": "gift", "then": "ask", "where": {"cents": {"above": 10}}}),
    (
        {
            "tool": "refund",
            "then": "approve",
            "where": {"cents": {"at_most": 9}, "order_id": {"one_of": ["5", "6", "9"]}},
        },
    ),
)
"""Rules about what tools are called with: some can't be compared with it, or are about what is not there."""

FOR_CLIENTS: tuple[tuple[dict[str, Any], ...], ...] = (
    (),
    ({"tool": "outside", "then": "deny"},),
    ({"tool": "outside", "then": "ask"},),
    ({"tool": "outside", "then": "ask"},),
    ({"tool": "outside", "then": "ask", "where": {"where": {"equals": "there"}}},),
    ({"tool": "outside", "then": "approve"}, {"tool": "*", "then": "ask"}),
)
"""Rules about what a client runs."""

CROWD = 13
"""People who do something in one moment: more than Temporal takes updates at once."""

LARGER = "x" * (MAX_INPUT_BYTES + 1)

REFUSED: tuple[Sent, ...] = (
    (names.APPROVE, {"call_id": "*", "arguments": {"cents": 5}}),
    (names.APPROVE, {"call_id": "*", "expected": {"cents": -1}}),
    (names.APPROVE, {"call_id": "*", "note": LARGER}),
    (names.DENY, {"call_id": "*", "reason": LARGER}),
    (names.MESSAGE, {"text": LARGER}),
    (names.MESSAGE, {"parts": [{"kind": "tool_result", "call_id": "c1-0", "name": "pay", "content": []}]}),
    (names.SET_POLICY, {"rules": [{"tool": "pay", "then": "sometimes"}]}),
)
"""Signals that can be read, and are not to be followed."""

RESTS = 700.0
"""Seconds, of who goes away for a while."""


def at_once(server: Server, conversation_id: str, *sent: Sent) -> None:
    """Sends all of it in one moment, so that it comes to the conversation in one workflow task."""
    try:
        run = server.open(conversation_id)
    except RPCError:
        return
    for name, payload in sent:
        if name == CANCEL:
            server.request_cancel(run)
            continue
        values = Payloads(payloads=data_converter.payload_converter.to_payloads([payload]))
        server.arrive(run, "workflow_execution_signaled", signal_name=name, input=values, identity="somebody")


async def decide(person: Person, what: str, conversation: Conversation, waiting: WaitingCall) -> None:
    """About a call that waits."""
    call_id, told, chance = waiting.call_id, person.of(conversation.id), person.chance
    mine: Sent = chance.choice(
        (
            (names.APPROVE, {"call_id": call_id, "by": "me"}),
            (names.DENY, {"call_id": call_id, "by": "me"}),
            (names.ANSWER, {"call_id": call_id, "by": "me", "content": f"A{call_id}"}),
            (names.APPROVE, {"call_id": call_id, "by": "me", "arguments": {"x": [1]}}),
        )
    )
    theirs: Sent = (chance.choice((names.APPROVE, names.DENY)), {"call_id": call_id, "by": "stranger"})
    match what:
        case "cancel and decide":
            at_once(
                person.server,
                conversation.id,
                *chance.choice((((names.CANCEL_TURN, {}), mine), (mine, (names.CANCEL_TURN, {})))),
            )
        case "close and decide":
            told.ended = True
            at_once(
                person.server, conversation.id, *chance.choice((((names.CLOSE, {}), mine), (mine, (names.CLOSE, {}))))
            )
        case "two people":
            at_once(person.server, conversation.id, *chance.choice(((theirs, mine), (mine, theirs), (mine, mine))))
        case "two words":
            words: Sequence[Sent] = [(name, {"call_id": call_id, "by": "me"}) for name in (names.APPROVE, names.DENY)]
            at_once(person.server, conversation.id, *chance.sample(words, 2))
        case "always, if":
            await _for_such(person, conversation, waiting)
        case "stranger":
            at_once(person.server, conversation.id, theirs)
        case "noted":
            await _noted(person, conversation, call_id)
        case "reset":
            await person._reset(conversation)
        case "crowd":
            deciding = (
                person._decided(conversation, "approve", call_id, lambda: conversation.approve(call_id))
                for _ in range(CROWD)
            )
            await asyncio.gather(*deciding)
        case "refused":
            at_once(person.server, conversation.id, *person.chance.sample(REFUSED, 3))
        case "always":
            await person._try(conversation, lambda: conversation.approve(call_id, always=True))
        case "never":
            await person._try(conversation, lambda: conversation.deny(call_id, reason="no", always=True))
        case _:
            pass  # they wait


def _compared(chance: Random) -> tuple[dict[str, Any], ...]:
    """A rule whose bound some call is likely to meet."""
    bound = {chance.choice(("below", "above", "at_most", "at_least")): chance.randint(2, 8)}
    then, tool = chance.choice(("approve", "approve", "deny")), chance.choice(("refund", "gift", "*"))
    return ({"tool": tool, "then": then, "where": {"cents": bound}},)


async def _for_such(person: Person, conversation: Conversation, waiting: WaitingCall) -> None:
    """Decides for always on calls like this one, by what they are called with."""
    cents = waiting.arguments.get("cents")
    if not isinstance(cents, int):
        return
    conditions: Sequence[dict[str, Any]] = (
        {"at_most": cents},
        {"at_least": cents},
        {"below": cents + 1},
        {"above": cents},
        {"equals": cents + 2},
        {"one_of": [cents, cents + 4]},
        {"above": cents - 3, "below": cents + 5},
    )
    where = {"cents": person.chance.choice(conditions)}
    if person.chance.random() < 0.5:
        await person._try(conversation, lambda: conversation.approve(waiting.call_id, always=where))
    else:
        await person._try(conversation, lambda: conversation.deny(waiting.call_id, reason="no", always=where))


async def _noted(person: Person, conversation: Conversation, call_id: str) -> None:
    """Approves with a note of its own: whoever is told that it was not taken may count on that."""
    told = person.of(conversation.id)
    note = f"note {len(told.notes)}"
    told.notes.append(note)
    try:
        await conversation.approve(call_id, note=note)
    except (Refused, Ended, NotFound):
        told.not_taken.append(note)
    except Unreachable as error:
        if "will not be carried out" in str(error):
            told.not_taken.append(note)


async def steer(person: Person, what: str, conversation: Conversation, agent: str, keep_open: timedelta | None) -> None:
    """What nobody was asked for, and what people do about a conversation that is held up."""
    told = person.of(conversation.id)
    match what:
        case "another model":
            await person._try(conversation, lambda: conversation.resume(model="scripted:chosen"))
        case "close" | "close twice":
            told.ended = True
            for _ in range(1 + (what == "close twice")):
                at_once(person.server, conversation.id, (names.CLOSE, {}))
        case "cancel_turn":
            await person._try(conversation, conversation.cancel_turn)
        case "cancel by signal":
            at_once(person.server, conversation.id, (names.CANCEL_TURN, {}))
        case "cancel and go on":
            at_once(person.server, conversation.id, (names.CANCEL_TURN, {}))
            await asyncio.sleep(person.chance.choice((0.0, 0.2, 1.0)))
            await _while_it_ends(person, conversation, agent, keep_open)
        case "cancel both":
            told.ended = True
            both: Sequence[Sent] = ((names.CANCEL_TURN, {}), (CANCEL, {}))
            at_once(person.server, conversation.id, *person.chance.choice((both, both[::-1])))
        case "terminate":
            told.ended = told.terminated = True
            handle = person.client.temporal.get_workflow_handle(conversation.id)
            await person._try(conversation, lambda: handle.terminate("somebody did"))
        case "resume by signal":
            at_once(person.server, conversation.id, (names.RESUME, {}))
        case "say":
            await person.say(agent, conversation.id, keep_open=keep_open)
        case "say again":
            await _say_again(person, conversation, agent, keep_open)
        case "several":
            await _say_several(person, conversation)
        case "crowd":
            told.crowded = True
            saying = (person.say(agent, conversation.id, keep_open=keep_open) for _ in range(CROWD))
            await asyncio.gather(*saying)
        case "refused":
            at_once(person.server, conversation.id, *person.chance.sample(REFUSED, 3))
        case "rest":
            await asyncio.sleep(RESTS)
        case "policy":
            rules = person.chance.choice(POLICIES)
            await person._try(conversation, lambda: conversation.set_policy(rules))
        case "policy for clients":
            rules = person.chance.choice(FOR_CLIENTS)
            await person._try(conversation, lambda: conversation.set_policy(rules))
        case "policy with conditions":
            rules = person.chance.choice((*CONDITIONS, *([_compared(person.chance)] * len(CONDITIONS))))
            await person._try(conversation, lambda: conversation.set_policy(rules))
        case "policy by signal":
            rules = person.chance.choice((*POLICIES, ({"tool": 5},)))
            at_once(person.server, conversation.id, (names.SET_POLICY, {"rules": rules, "by": "me"}))
        case "list":
            await _list(person)
        case "wait":
            pass
        case _:
            raise AssertionError(f"nobody knows how to {what}")


async def _while_it_ends(person: Person, conversation: Conversation, agent: str, keep_open: timedelta | None) -> None:
    """What comes while a cancelled turn has not ended yet."""
    match person.chance.choice(("pause", "say", "say", "close", "cancel_turn")):
        case "pause":
            at_once(person.server, conversation.id, (names.PAUSE, {}))
        case "say":
            await person.say(agent, conversation.id, keep_open=keep_open)
        case "close":
            person.of(conversation.id).ended = True
            at_once(person.server, conversation.id, (names.CLOSE, {}))
        case _:
            await person._try(conversation, conversation.cancel_turn)


async def _say_again(person: Person, conversation: Conversation, agent: str, keep_open: timedelta | None) -> None:
    """What was said before, with the same id: somebody is not sure whether it came through."""
    said = person.of(conversation.id).said
    if said:
        message_id = person.chance.choice([*said])
        again = {"id": conversation.id, "keep_open": keep_open, "message_id": message_id}
        await person._try(conversation, lambda: person._send(agent, said[message_id], first=False, **again))


async def _say_several(person: Person, conversation: Conversation) -> None:
    """Several messages by the same handle, and then waits for the answer to all of them."""
    told, text = person.of(conversation.id), ""
    for _ in range(person.chance.choice((2, 5))):
        number = len(told.said) + len(told.maybe)
        told.maybe[f"m{number}"] = text = f"message {number} of {conversation.id}"
        try:
            await conversation.send(text, message_id=f"m{number}")
        except (Refused, Ended, Unreachable, NotFound):
            return
        told.said[f"m{number}"] = told.maybe.pop(f"m{number}")
    waits = person._await_reply(conversation, text)
    person.waiting.append(asyncio.get_running_loop().create_task(waits, name=conversation.id))


async def _list(person: Person) -> None:
    """Somebody looks at a list, whatever the index knows by then."""
    wanted = person.chance.choice((None, "idle", "running", "awaiting_approval", "done"))
    async for conversation in person.client.conversations(status=wanted):
        if wanted not in (None, conversation.status):
            person.server.wrong(f"a list of those that are {wanted} has one that is {conversation.status}")
