"""A handle on one conversation: talk to it, decide on its calls, follow it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self
from uuid import uuid4

from pydantic import JsonValue

from everturn import names
from everturn.agent import Agent
from everturn.calls.decision_records import already_decided
from everturn.client import listing, updates
from everturn.client.cancel_turn import find_seen_reply, wait_for_end_of_turn
from everturn.client.client_base import ClientBase
from everturn.client.forks import Forks
from everturn.client.held_signals import holds_back
from everturn.client.messages import MessageLike, check_room, decision_options, message_payload, with_tools
from everturn.client.missing_worker import MissingWorkerWatch, with_warnings
from everturn.client.policy_tools import warn_of_unknown_tools
from everturn.client.seen_calls import SeenCall, seen_options
from everturn.client.send_or_revive import send_or_revive
from everturn.client.status_waits import with_wait
from everturn.client.stuck import QueueVersions
from everturn.client.tools_run_here import call_tool, run_tools
from everturn.client.typed_outcomes import OutcomeWithValue, typed_output, with_value
from everturn.corrections import unfit_reason
from everturn.errors import Ended, EverturnError, InvalidSetting, Refused, Unreachable
from everturn.events import Event
from everturn.history.endings import final_reply, final_status, held_status, stalled_error
from everturn.history.event_reader import EventReader
from everturn.history.open_calls import OpenCall, open_calls
from everturn.history.reader import read_steps
from everturn.history.same_work import check_tenant
from everturn.history.state_by_history import StateByHistory
from everturn.history.steps import RunClosed
from everturn.history.transcript import read_transcript
from everturn.live.live_activities import LiveActivities, interleave_events
from everturn.models import Model
from everturn.payloads import Status, WaitingCall
from everturn.policy import Rule
from everturn.records import Message, Outcome, ResultPart, ToolCall, ToolResult, tool_pairs
from everturn.sizes import LONG_MESSAGE_BYTES, check_input, size_of
from everturn.state import State
from everturn.subagents.at_work import agents_at_work, may_have_agents, with_agents
from everturn.subagents.call_addresses import find_named_call
from everturn.subagents.events import with_children
from everturn.subagents.followed import FollowedAgents
from everturn.temporal import temporal_errors
from everturn.temporal.any_status import held_up, is_over
from everturn.temporal.ids import known_id
from everturn.text.commands import command_about
from everturn.tools.output_type import OutputT_co
from everturn.tools.results import parts_of_blocks
from everturn.tools.tool import Tool
from everturn.validation.explaining import explain
from everturn.validation.names_of_other_libraries import no_attribute
from everturn.vendor_models.plugins import check_provider
from everturn.vendors.content_blocks import says_error


class Conversation(Forks, Generic[OutputT_co]):
    """One conversation, by its id. Any process may have any number of handles on the same one. With the Agent that it
    was started with, its replies are of that agent's `output` type; type checkers know it as Conversation[Invoice]."""

    def __init__(self, client: ClientBase, conversation_id: str, agent: Agent[OutputT_co] | None = None) -> None:
        super().__init__(client, conversation_id)
        self._agent = agent
        self._sent: set[str] = set()
        """The ids of messages sent by this handle. The server may show them late: reply() waits until it does."""

    def __repr__(self) -> str:
        return f"<Conversation {self.id!r}>"

    if not TYPE_CHECKING:  # a type checker is to go on refusing what is not there

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("Conversation", name)

    # ------------------------------------------------------------ talking

    async def send(
        self,
        message: MessageLike,
        *,
        message_id: str | None = None,
        stream: bool | None = None,
        revive: bool = False,
        tools: Iterable[str | Tool] | None = None,
    ) -> bool:
        """Says something more. Returns once the server has it, whether or not a worker runs; the conversation takes it
        at its next turn boundary. With a `message_id`, it is safe to repeat. `stream`: whether its text is streamed
        from now on (see `Client.start`); None leaves it as it is. `tools`: the names of the only tools that the model
        is offered until the answer is complete, [] for none; None: all. If the agent lacks one, it stalls.

        Raises Ended if the conversation is over. With `revive`, the message starts it again instead, with its
        transcript, agent, model, limits and `keep_open`. Returns whether it was started again.
        """
        message = with_tools(message, tools)
        if revive:
            return await send_or_revive(self, message, message_id=message_id, stream=stream)
        await self._deliver(message, message_id=message_id, stream=stream)
        return False

    async def _deliver(
        self, message: MessageLike, *, message_id: str | None, stream: bool | None, tenant: str | None = None
    ) -> None:
        """Sends it, unless the conversation is for another `tenant` than this one. Raises AlreadyStarted, then."""
        message_id = uuid4().hex if message_id is None else message_id
        payload = message_payload(message, message_id=message_id, stream=stream)
        described = await self._describe()  # any workflow would take the signal
        if size_of(payload) > LONG_MESSAGE_BYTES:
            check_room(payload, described)
        with self._explaining_errors():
            if tenant is not None:
                await check_tenant(self._temporal, described, tenant)
            # The conversation takes a message_id once.
            await temporal_errors.ask_until_answered(self._handle.signal, names.MESSAGE, payload)
        self._sent.add(known_id(message_id))

    async def reply(self) -> OutputT_co:
        """Waits for the final reply to everything said so far, and returns it: its text; or a value of the agent's
        `output` type, if the handle has an Agent with one, as those from `client.start(agent, ...)` have.

        Raises Stalled if a person has to help first, and Ended if the conversation ended without a reply, or without
        one that fits the `output` type. Waits for approvals as long as they take.
        """
        return self._typed_reply(*await self._wait_for_reply())

    async def _wait_for_reply(self) -> tuple[str, JsonValue]:
        """The text of the reply, and the same as the agent's `output` type, in JSON. Raises what `reply` raises."""
        described = await self._describe()
        events_held_back = holds_back(described)
        seen = self._client.read_positions.take_position(self.id, described.run_id)
        by_history = seen.by_history
        state = by_history.state
        read_all = seen.reading.mark.last >= described.history_length and not events_held_back
        if read_all and state.is_answered and state.has_taken(self._sent):
            self._client.read_positions.keep_position(self.id, seen)
            return self._answer_of(state)
        steps = self._runs.follow(described.run_id, reading=seen.reading)
        async with aclosing(with_warnings(steps, self._temporal, self.id)) as logged_steps:
            async for run_id, step in logged_steps:
                final = final_reply(by_history, step)
                by_history.take_step(step)
                if events_held_back and (run_id != described.run_id or step.id > described.history_length):
                    events_held_back = False
                    described = await self._describe()
                if run_id == described.run_id and (step.id < described.history_length or events_held_back):
                    continue  # this was its state before; more events are known to follow, or may be held back
                state = by_history.state
                finished = by_history.finished
                if finished and finished.next_run_id:
                    if finished.alike:
                        described = await self._describe()
                    continue
                if finished:
                    return self._last_reply(self._outcome_of(finished), state)
                if by_history.signals.has_message or not state.has_taken(self._sent):
                    temporal_errors.stalled_if_held_up(described)
                    continue
                if state.is_answered or final is not None:
                    if run_id == seen.run_id:
                        self._client.read_positions.keep_position(self.id, seen)
                    if final is None:
                        return self._answer_of(state)
                    return final, state.last_reply.output
                if state.stall:
                    raise stalled_error(self.id, state.turn, state.stall)
                if state.cancelled and not state.inbox.messages:
                    raise Ended(f"The turn of conversation {self.id!r} was cancelled.", cure="Say something new.")
                temporal_errors.stalled_if_held_up(described)
        raise temporal_errors.breaks_off(self.id)

    async def outcome(self) -> OutcomeWithValue[OutputT_co]:
        """How the conversation ended; waits for the end, through stalls and approvals. If the handle has an Agent, its
        `value` is the output as the agent's type."""
        steps = self._runs.follow((await self._describe()).run_id)
        async with aclosing(with_warnings(steps, self._temporal, self.id)) as logged_steps:
            closed = [step async for _, step in logged_steps if isinstance(step, RunClosed)]
        return with_value(self._outcome_of(closed[-1] if closed else None), self._agent)

    # ------------------------------------------------------------ looking

    async def status(self, *, children: bool = True) -> Status:
        """What the conversation is doing, and which calls wait for whom. Asks a worker, unless it is over.

        While sub-agents work for it, they are asked too: their waiting calls, and those of the agents that they ask,
        are in `waiting`, with their `path`. The state is the conversation's own. `children=False` asks none of them.
        """
        status = await self._own_status()
        if not (children and status.agents):
            return status
        return with_agents(status, await agents_at_work(self._open_conversation, status.agents))

    async def _own_status(self) -> Status:
        described = await self._describe()
        if is_over(described):
            return final_status(await self.by_history())
        if held := held_up(described):  # Temporal gives its tasks to no worker, and may answer no query
            return held_status(await self.by_history(), *held)
        try:
            with self._explaining_errors("status query"):
                status = await updates.ask_status(self._temporal, self.id)
        except Unreachable:
            if trouble := (
                await listing.mark_stuck(listing.read_listed(described), described, QueueVersions(self._temporal))
            ).trouble:
                raise Unreachable(f"Conversation {self.id!r} is stuck: {trouble}.") from None
            raise
        except InvalidSetting:
            await self.by_history()  # names the key, or the converter, that this process lacks
            raise
        return await with_wait(status, described, self._temporal)

    async def transcript(self) -> tuple[Message, ...]:
        """The messages so far, in order. Reads the history: needs no worker. The results of one reply's calls are one
        message, which comes once the last of them has its result; `events()` has each at once."""
        by_history = await self.by_history()
        with self._explaining_errors():
            return tuple(await read_transcript(self._temporal, self.id, by_history.transcript))

    async def tool_pairs(self) -> tuple[tuple[ToolCall, ToolResult], ...]:
        """Each tool call so far with its result, in the order of the calls. A call that has no result yet is left out,
        and so are the other calls of its reply. Reads the history, as `transcript` does."""
        return tool_pairs(await self.transcript())

    def events(
        self, since: str | None = None, *, deltas: bool = True, children: bool | None = None
    ) -> AsyncGenerator[Event]:
        """The events so far, and then each new one until the conversation is over. Text comes while it is written.

        `since`: the cursor of the last event that you have seen. The events start after it; the text of a running
        turn comes from its beginning. Without `since`, they start at the conversation's beginning, as far back as
        the namespace keeps it, or when it was last revived. `deltas=False` leaves out TextDelta, ThinkingDelta,
        ToolProgress and TurnRetried.

        While sub-agents work, the events also tell which of their calls wait now, and who decides on those:
        ApprovalRequested, AnswerRequested and Decided with a `child` and a `path`, live only. `approve`, `deny` and
        `answer` take these calls' ids. `children=True` adds all events of the agents that work for it, from their
        beginning; `children=False` leaves all of them out.

            async for event in conversation.events():
                match event:
                    case TextDelta(text=text):
                        page.append(text)
                    case TurnStarted() | TurnRetried():
                        page.start_over()
                    case Replied(message=message):
                        page.replace(message.text)

        A watcher costs the server one waiting request (the long poll of the history), no history event, and no
        worker's time; and one more for each sub-agent at work. Deltas cost one small request
        (DescribeWorkflowExecution) each 1.5 s, and only while a model turn or a tool runs. With `stream`, and if
        EVERTURN_LIVE names no lane, there are about ten such requests a second while the model writes, and two while a
        tool runs.
        """
        own = self._own_events(since, deltas=deltas, agents=children is None)
        if not children:
            return own
        return with_children(own, self._open_conversation, self._temporal, self.id, since, deltas=deltas)

    async def _own_events(self, since: str | None, *, deltas: bool, agents: bool) -> AsyncGenerator[Event]:
        reader = EventReader(since)
        cursor = since or ""
        steps = self._runs.follow_revivals(reader.run_id) if since else self._runs.follow_all()
        live = LiveActivities(self._temporal, self.id, lane=self._client.live) if deltas else None
        silence = MissingWorkerWatch(self._temporal, self.id)
        below = FollowedAgents(self._open_conversation, self.id, live_only=True) if agents else None
        async with aclosing(interleave_events(silence.note_steps(steps), live, silence, below)) as steps_with_events:
            async for run_id, step, between in steps_with_events:
                for event in between:
                    yield event.model_copy(update={"cursor": cursor})
                for event in reader.read_step(step, run_id=run_id) if step else ():
                    cursor = event.cursor
                    yield event

    async def cursor(self) -> str:
        """The current position, for `events(since=)`."""
        described = await self._describe()
        return f"{described.run_id}/{described.history_length}"

    # ------------------------------------------------------------ deciding

    async def approve(
        self,
        call_id: str = names.EVERY_CALL,
        arguments: dict[str, JsonValue] | None = None,
        note: str | None = None,
        *,
        expected: dict[str, JsonValue] | str | SeenCall | None = None,
        always: bool | Mapping[str, Any] = False,
        within: timedelta | None = None,
        children: bool = True,
    ) -> tuple[str, ...]:
        """Lets a call run, with your `arguments` instead of the model's if given. Returns the approved calls' ids.

        Name the call. Without `call_id`, every call that waits for an approval is approved, also one whose outcome is
        unknown (`reason` is `outcome_unknown`): it may have run already, and **runs again**.

        `expected`: the call as you saw it, of `status().waiting` or of the event that told of it, or its `question`.
        The decision is refused if something else is asked about the call now, such as since it has run and its outcome
        is unknown. Or the arguments that you saw: then it is refused only if the call has others now. `always=True`:
        decide the same for every later call of that tool in this conversation. `always={"cents": {"at_most":
        2000}}`: only for calls whose arguments fit; see Condition. `within`: after this time, by this machine's clock,
        the decision is not accepted any more.

        A call of a sub-agent, at any depth, is decided here by its own id, as `status().waiting` has it; the agent that
        asked says who may. If another waiting call has the same id, name it by its `address`. Without `call_id`,
        sub-agents' calls are approved, too. `children=False`: only the conversation's own calls are meant.

        Raises Refused, with the reason, if the conversation does not accept it. Raises Unreachable if no worker
        answers within 10 s; the decision is then withdrawn and not carried out later, unless the message says
        otherwise. All methods that decide or steer do the same. At most eight decisions are sent at the same time;
        further ones wait until one of these is done.
        """
        more = {
            "arguments": arguments,
            "note": note,
            **seen_options(expected, approves=True),
            **decision_options(always, within),
        }
        return await self._decide_calls(names.APPROVE, call_id, children=children, **more)

    async def deny(
        self,
        call_id: str = names.EVERY_CALL,
        reason: str | None = None,
        *,
        expected: str | SeenCall | None = None,
        always: bool | Mapping[str, Any] = False,
        within: timedelta | None = None,
        children: bool = True,
    ) -> tuple[str, ...]:
        """Denies a call: it does not run, and the model reads the reason. `expected`: the call as you saw it; this,
        `always`, `within` and `children` are as in `approve`."""
        more = {"reason": reason, **seen_options(expected), **decision_options(always, within)}
        return await self._decide_calls(names.DENY, call_id, children=children, **more)

    async def set_policy(self, rules: Iterable[Rule | Mapping[str, Any]]) -> None:
        """Replaces all rules that decide on calls, remembered decisions included; `status().policy` shows them.
        Waiting calls are looked at again. Raises Refused."""
        try:
            policy = [Rule.model_validate(rule) for rule in rules]
        except ValueError as error:
            raise Refused(f"This is not a rule: {explain(error)}.", cure="See everturn.policy.Rule.") from None
        warn_of_unknown_tools(policy, self._agent)
        await self._send_update(names.SET_POLICY, {"rules": [rule.model_dump(mode="json") for rule in policy]})

    async def answer(
        self,
        call_id: str,
        content: JsonValue = None,
        *,
        parts: Iterable[ResultPart] = (),
        is_error: bool = False,
        expected: str | SeenCall | None = None,
        within: timedelta | None = None,
        children: bool = True,
    ) -> tuple[str, ...]:
        """Gives a call's result instead of the tool: a text or JSON, content blocks, or `parts` such as images.
        `expected`: the call as you saw it; this, `within` and `children` are as in `approve`."""
        if not parts and (blocks := parts_of_blocks(content)) is not None:
            parts = blocks
            is_error = is_error or says_error(content)
        result: dict[str, Any] = {"parts": tuple(parts)} if parts else {"content": content}
        more = {"is_error": is_error, **result, **seen_options(expected), **decision_options(False, within)}
        return await self._decide_calls(names.ANSWER, call_id, children=children, **more)

    async def call_tool(self, call: ToolCall | WaitingCall, function: Callable[..., Any]) -> ToolResult | None:
        """Runs a waiting call here, with a function or `@tool`, and answers it; returns the result that was given.

        None if somebody else answered first, or the call no longer waits. As on a worker, the arguments are
        validated against the function's schema, a sync function runs in a thread, and the model reads the errors that
        it raises, ToolFailed included. `call` comes from an AnswerRequested event or from `status().waiting`. A result
        of more than 200,000 characters, or 380 KB with images, is cut with a notice. Raises InvalidTool, and Refused
        if the call waits for an approval: nothing has run then.
        """
        return await call_tool(self, call, function)

    async def run_tools(self, functions: Iterable[Callable[..., Any]]) -> OutputT_co:
        """Waits like `reply()`, and meanwhile runs the waiting calls of these tools here, several at a time.

        Use it in one process only: with two, a call may run more than once. The first answer counts.
        """
        reply: OutputT_co = await run_tools(self, functions)
        return reply

    async def pause(self, reason: str | None = None) -> None:
        """Holds the conversation before its next model turn."""
        await self._send_update(names.PAUSE, {"reason": reason})

    async def resume(self, *, model: str | None = None) -> None:
        """Goes on after a pause or a stall, with another `model` if given. Raises InvalidModel."""
        await self._send_update(names.RESUME, {"model": model and check_provider(Model(model)).name})

    async def cancel_turn(self, reason: str | None = None) -> None:
        """Stops the model call and the running tools. The part of the reply that was already written is kept, and the
        conversation waits for its next message. Returns once the model call has ended: within seconds, even if
        its worker is gone."""
        await self._cancel_turn({"reason": reason})

    async def close(self, reason: str | None = None) -> None:
        """Ends the conversation: the current reply is finished, and waiting calls are denied. A message that arrives
        before the end starts it again, as a new run."""
        await self._send_update(names.CLOSE, {"reason": reason})

    # ------------------------------------------------------------ underneath

    async def _cancel_turn_without_deciding(self) -> None:
        """As `cancel_turn`, of who may not decide: raises Refused while a call waits for an approval here."""
        await self._cancel_turn({"without_deciding": True})

    async def _close_without_deciding(self, reason: str | None) -> None:
        """As `close`, of who may not decide: raises Refused while a call waits for an approval here."""
        await self._send_update(names.CLOSE, {"reason": reason, "without_deciding": True})

    async def _cancel_turn(self, control: dict[str, Any]) -> None:
        seen = await find_seen_reply(self._temporal, self.id, self._client.live)
        await self._send_update(names.CANCEL_TURN, {**control, "seen": seen})
        await wait_for_end_of_turn(self._temporal, self.id)

    async def _decide_calls(self, name: str, call_id: str, *, children: bool, **payload: Any) -> tuple[str, ...]:
        if not children:
            return await self._decide_here(name, call_id=call_id, **payload)
        check_input(name, _given_fields({"call_id": call_id, **payload}))  # before anything is asked
        places = await self._find_places(
            name, call_id, edited=bool({"arguments", "expected", "question"} & _given_fields(payload).keys())
        )
        if len(places) == 1:
            conversation, own_id = places[0]
            return await conversation._decide_here(name, call_id=own_id, **payload)
        decided: tuple[str, ...] = ()
        refused: list[str] = []
        for conversation, own_id in places:
            try:
                decided += await conversation._decide_here(name, call_id=own_id, **payload)
            except (Refused, Ended) as error:
                refused.append(f"Conversation {conversation.id!r}: {error.message}")
        if refused:
            if decided:
                refused.append(f"Decided: {', '.join(decided)}.")
            raise Refused(" ".join(refused), cure=f"`{command_about('show', self.id)}` shows what waits.")
        return decided

    async def _decide_here(self, name: str, **payload: Any) -> tuple[str, ...]:
        """Decides on the conversation's own calls."""
        try:
            answer = await self._send_update(name, payload)
        except Ended as error:
            before = await self._decided_before(payload["call_id"])
            raise Ended(f"{error.message}{before}", cure=error.cure) from error
        what = f"The {name} was carried out. The answer of conversation {self.id!r} to it"
        return tuple(updates.readable_answer(answer, what)["call_ids"])

    async def _find_places(self, name: str, call_id: str, *, edited: bool) -> list[tuple[Conversation, str]]:
        """The conversations that wait for this decision, each with the call's id there: this one, unless it is about
        sub-agents' calls. Raises Refused if the id means several calls."""
        own_place = [(self, call_id)]
        if not call_id.startswith("/") and not may_have_agents(await self._describe()):
            return own_place
        waiting = (await self.status()).waiting
        if call_id != names.EVERY_CALL:
            call = find_named_call(waiting, call_id)
            return [(self.where(call), call.call_id)] if call else own_place
        if edited:  # which no decision on every call may be: the conversation says so
            return own_place
        waiting = tuple(call for call in waiting if name != names.APPROVE or call.needs == "approval")
        ids = dict.fromkeys(self.where(call).id for call in waiting)
        return [(self._open_conversation(conversation_id), call_id) for conversation_id in ids] or own_place

    def where(self, call: WaitingCall) -> Conversation:
        """The conversation in which a call of `status().waiting` waits: this one, or a sub-agent's."""
        if not call.path:
            return self
        return self._open_conversation(call.path[-1].conversation_id)

    def _handle_on(self, client: ClientBase, conversation_id: str) -> Self:
        return type(self)(client, conversation_id, self._agent)

    def _open_conversation(self, conversation_id: str) -> Conversation:
        return Conversation(self._client, conversation_id)

    async def _decided_before(self, call_id: str) -> str:
        """What was decided on a call, and by whom, in a sentence; empty if that is not known."""
        with suppress(EverturnError):
            for message in reversed(await self.transcript()):
                for result in message.tool_results:
                    if result.call_id == call_id and result.decision:
                        return f" {already_decided(call_id, result.decision)}"
        return ""

    async def _send_update(self, name: str, payload: dict[str, Any]) -> Any:
        fields = _given_fields(payload)
        check_input(name, fields)
        described = await self._describe()  # any workflow may have an update of that name
        temporal_errors.refuse_if_held_up(described, name)
        with self._explaining_errors(name):
            return await updates.send_update(self._temporal, self.id, name, {**fields, "by": self._client.by})

    async def by_history(self) -> StateByHistory:
        """The conversation's state, computed from the history of its latest run."""
        by_history = StateByHistory(run_id=(await self._describe()).run_id)
        with self._explaining_errors():
            async for step in read_steps(self._temporal, self.id, run_id=by_history.run_id):
                by_history.take_step(step)
        return by_history

    def _outcome_of(self, finished: RunClosed | None) -> Outcome:
        if finished is None:
            raise temporal_errors.breaks_off(self.id)
        if finished.outcome is None:
            raise Ended(
                f"Conversation {self.id!r} ended without an outcome: {finished.why.rstrip('.')}.",
                cure=f"`{command_about('show', self.id)}` shows its transcript. A message revives it: "
                "send(..., revive=True); start(..., again=True) starts anew with its id.",
            )
        return finished.outcome

    def _last_reply(self, outcome: Outcome, state: State) -> tuple[str, JsonValue]:
        """The outcome's text and output. Raises Ended if the last answer is not whole, or a message has none: the text
        then came before calls, or answers an earlier message; and if it does not fit the `output` type."""
        is_whole = state.last_reply.final and not state.cancelled
        if not is_whole or any(message.role == "user" and not message.author for message in outcome.tail):
            raise Ended(
                f"Conversation {self.id!r} ended before it answered every message: {outcome.reason or outcome.status}.",
                cure=f"`{command_about('show', self.id)}` shows its transcript.",
            )
        if self._has_output_type and state.last_reply.output_problem:
            raise Ended(
                f"Conversation {self.id!r} ended without an output: {outcome.reason or outcome.status}.",
                cure="`await conversation.outcome()` has the text of its last reply.",
            )
        return outcome.text, outcome.output

    def _answer_of(self, state: State) -> tuple[str, JsonValue]:
        """Of a conversation that stays open. Raises Ended if its last answer does not fit the `output` type."""
        last = state.last_reply
        if self._has_output_type and last.output_problem:
            reason = unfit_reason(last.output_problem)
            raise Ended(
                f"The turn of conversation {self.id!r} ended without an output: {reason}.",
                cure=f"Say something new. `await client.conversation({self.id!r}).reply()` is the reply's text.",
            )
        return last.text, last.output

    @property
    def _has_output_type(self) -> bool:
        return self._agent is not None and self._agent.output_adapter is not None

    def _typed_reply(self, text: str, output: JsonValue) -> OutputT_co:
        """What `reply` returns. Raises ConversationError."""
        if self._agent is None or not self._has_output_type:
            return text  # type: ignore[return-value] # the type is Any, then
        return typed_output(output, text, self._agent, conversation_id=self.id)


def _given_fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was not given. An answer may be None."""
    return {key: value for key, value in payload.items() if value is not None or key == "content"}


async def read_so_far(client: ClientBase, conversation_id: str) -> tuple[tuple[Message, ...], tuple[OpenCall, ...]]:
    """A conversation's transcript, and what has come of the calls whose results it does not have yet: both as of one
    moment. Needs no worker. Raises NotFound and Unreachable."""
    by_history = await Conversation(client, conversation_id).by_history()
    with temporal_errors.explained(client.temporal, conversation_id):
        messages = await read_transcript(client.temporal, conversation_id, by_history.transcript)
    return tuple(messages), open_calls(by_history)
