"""Cases: recorded conversations, as files for git. Each is whole, so that it runs where the conversation is not.

A case is a pydantic-evals case: `inputs`, `metadata`, `expected_output`. What people decided is in what is expected: a
denied call is not, and an edited one has the arguments that the person gave it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from everturn.evals.recorded import Recorded, RecordedCall, last_text, spoken_counts
from everturn.records import Decision, Message, ResultPart, Stop, Text, ToolCall, ToolResult, is_said_by_person
from everturn.workflows.applied_decisions import AppliedDecision
from everturn.workflows.tool_results import result_of_decision, with_approval

Label = Literal["denied", "edited", "answered", "stalled"]

Verdict = Literal["approved", "edited", "denied", "answered"]

VERDICTS: Final[dict[Verdict, Literal["approve", "deny", "answer"]]] = {
    "approved": "approve",
    "edited": "approve",
    "denied": "deny",
    "answered": "answer",
}

CASE: Final = "case:"
"""Begins the key of a recorded conversation that was read from a case."""

SAID_AT: Final = "recorded"
"""In the place of the time of a decision, which cases do not have."""

Content = str | list[dict[str, JsonValue]]
"""A text, or parts in everturn's own JSON form, if it has links to images or documents."""


class CaseRecord(BaseModel):
    """Fields are in the order in which people read them. Those that say nothing are not written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name, field in type(self).model_fields.items():
            if not field.is_required() and getattr(self, name) == field.get_default(call_default_factory=True):
                written.pop(name, None)
        return written


class CaseCall(CaseRecord):
    """A call of the recorded conversation: what the model asked for, what a person made of it, what came back."""

    tool: str
    arguments: dict[str, JsonValue]
    effect: str = ""
    """`read`, `idempotent` or `once`; empty if it is not known."""
    decision: Verdict | None = None
    """A person's; None if nobody decided."""
    reason: str = ""
    """Of the person: the reason of a denial, or the note of an approval."""
    edited_to: dict[str, JsonValue] | None = None
    """The arguments that a person put in place of the model's."""
    result: Content | None = None
    """What came back; None if nothing did, or if the call was denied."""
    is_error: bool = False


class CaseStep(CaseRecord):
    """What people said; or a reply of the model's, with its calls."""

    user: Content | None = None
    tools: tuple[str, ...] | None = None
    """The only tools that the person's message named for its answer."""
    assistant: str | None = None
    agent: str = ""
    """The agent that replied, if the conversation had been handed on."""
    stop: Stop | None = None
    """Why the reply was cut off; None if it is whole."""
    calls: tuple[CaseCall, ...] = ()


class CaseInputs(CaseRecord):
    """What is put to a candidate, and the recorded calls that answer its own."""

    conversation: str
    """The id; its digest if the redactor changed it."""
    agent: str
    at_turn: int | None = None
    """Only this reply, counted from 1, is asked for, after all that comes before it."""
    transcript: tuple[CaseStep, ...]

    @property
    def calls(self) -> tuple[CaseCall, ...]:
        """The calls that the case is about: of one turn, those of its reply."""
        replies = self.replies
        if self.at_turn is not None:
            replies = replies[self.at_turn - 1 : self.at_turn]
        return tuple(call for step in replies for call in step.calls)

    @property
    def calls_before(self) -> tuple[CaseCall, ...]:
        """Of one turn: those that had been made by then."""
        if self.at_turn is None:
            return ()
        return tuple(call for step in self.replies[: self.at_turn - 1] for call in step.calls)

    @property
    def replies(self) -> tuple[CaseStep, ...]:
        return tuple(step for step in self.transcript if step.assistant is not None)


class CaseFacts(CaseRecord):
    """What is known of the recorded conversation besides what was said."""

    labels: tuple[Label, ...] = ()
    """What people did in it, and whether it stalled."""
    status: str = ""
    model: str = ""
    tenant: str = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    ended_at: datetime | None = None
    """None if it had not ended when it was read."""


class Action(CaseRecord):
    """A call that is expected, or that a candidate made."""

    tool: str
    arguments: dict[str, JsonValue]
    effect: str = ""
    """Only of one that was made: what running it twice would mean."""
    turn: int | None = None
    """Only of one that was made: which reply's."""


class Expected(CaseRecord):
    """What the recorded conversation came to, after what people corrected."""

    calls: tuple[Action, ...] = ()
    """In order; with the arguments that people gave them, and without those that people denied."""
    text: str = ""
    output: JsonValue = None


class CaseOutcome(Expected):
    """What a candidate made of a case, in a rerun of it."""

    verdict: str = ""
    """As of a Comparison: `same calls`, `other calls`, `other ending`, `diverged` (nothing recorded answers its last
    call), `stuck`."""
    differences: tuple[str, ...] = ()
    """In words."""
    rerun: str = ""
    """The id of the rerun, which is a conversation."""


class RecordedCase(CaseRecord):
    """A recorded conversation, or one turn of it, as a case."""

    name: str
    inputs: CaseInputs
    metadata: CaseFacts = CaseFacts()
    expected_output: Expected = Expected()
    evaluators: list[JsonValue] = Field(default_factory=list)
    """Of pydantic-evals, for this case alone, in its own form. What people add here is kept."""

    def as_recorded(self) -> Recorded:
        """As evals look at a conversation."""
        return recorded_of_inputs(self.inputs, self.metadata)


# ------------------------------------------------------------ from a conversation


def cases_of(recorded: Recorded) -> list[RecordedCase]:
    """The conversation as a case, and beside it each turn on whose calls a person had another opinion than the
    model."""
    steps = list(_steps_of(recorded))
    cases = [_make_case(recorded, steps, None)]
    replies = 0
    for end, step in enumerate(steps, 1):
        if step.assistant is None:
            continue
        replies += 1
        if any(call.decision in ("denied", "edited") for call in step.calls):
            cases.append(_make_case(recorded, steps[:end], replies))
    return cases


def _make_case(recorded: Recorded, steps: Sequence[CaseStep], at_turn: int | None) -> RecordedCase:
    facts = CaseFacts(
        labels=labels_of(recorded),
        status=recorded.status,
        model=recorded.model,
        tenant=recorded.tenant or "",
        metadata=recorded.metadata,
        ended_at=recorded.ended_at,
    )
    inputs = CaseInputs(conversation=recorded.id, agent=recorded.agent, at_turn=at_turn, transcript=tuple(steps))
    case = RecordedCase(name=case_name(recorded.id, at_turn), inputs=inputs, metadata=facts)
    expected = Expected(calls=tuple(expected_calls(case)), text=recorded.text, output=recorded.output)
    if at_turn is not None:
        expected = Expected(calls=tuple(expected_calls(case)), text=steps[-1].assistant or "")
    return case.model_copy(update={"expected_output": expected})


def case_name(conversation_id: str, at_turn: int | None) -> str:
    if at_turn is None:
        return conversation_id
    return f"{conversation_id} turn {at_turn}"


def expected_calls(case: RecordedCase) -> Iterator[Action]:
    for call in case.inputs.calls:
        if call.decision == "denied":
            continue
        arguments = call.arguments if call.edited_to is None else call.edited_to
        yield Action(tool=call.tool, arguments=arguments)


def labels_of(recorded: Recorded) -> tuple[Label, ...]:
    """What a person, or a stall, made of the conversation."""
    labels: list[Label] = []
    if any(call.is_denied for call in recorded.calls):
        labels.append("denied")
    if any(call.edited_arguments is not None for call in recorded.calls):
        labels.append("edited")
    if any(call.decision and call.decision.verdict == "answer" for call in recorded.calls):
        labels.append("answered")
    if recorded.stalled:
        labels.append("stalled")
    return tuple(labels)


def _steps_of(recorded: Recorded) -> Iterator[CaseStep]:
    calls = {id(call.call): call for call in recorded.calls}
    turns = {id(reply): turn for turn, reply in recorded.replies.items()}
    for message in recorded.messages:
        if message.role == "assistant":
            case_calls = tuple(_case_call(calls[id(call)]) for call in message.tool_calls if id(call) in calls)
            stop = recorded.stops.get(turns.get(id(message), 0))
            yield CaseStep(assistant=message.text, agent=message.author, calls=case_calls, stop=stop)
        elif is_said_by_person(message):
            yield CaseStep(user=_content_of(message.parts), tools=message.tools)


def _case_call(recorded: RecordedCall) -> CaseCall:
    """Who decided is not in it."""
    verdict = _verdict_of(recorded)
    called = CaseCall(
        tool=recorded.call.name,
        arguments=recorded.call.arguments,
        effect=recorded.effect,
        decision=verdict,
        reason=(recorded.decision and recorded.decision.note) or "",
        edited_to=recorded.edited_arguments,
    )
    if recorded.result is None or verdict == "denied":
        return called
    own = {"result": _content_of(recorded.own_content), "is_error": recorded.result.is_error}
    return called.model_copy(update=own)


def _verdict_of(recorded: RecordedCall) -> Verdict | None:
    if recorded.decision is None:
        return None
    if recorded.edited_arguments is not None:
        return "edited"
    if recorded.decision.verdict == "deny":
        return "denied" if recorded.is_denied else None
    return "approved" if recorded.decision.verdict == "approve" else "answered"


def _content_of(parts: Sequence[Any]) -> Content:
    """Files themselves stay out: no redactor can read them, and no reviewer."""
    kept = [_without_data(part) for part in parts if part.kind in ("text", "image", "document")]
    if all(part.kind == "text" for part in kept):
        return Message.user(kept).text
    return [part.model_copy(update={"extra": {}}).model_dump(mode="json") for part in kept]


def _without_data(part: Any) -> Any:
    data = getattr(part, "data", None)
    if data is None:
        return part
    return Text(text=f"[{part.kind} of type {part.media_type}, left out of the case]")


# ------------------------------------------------------------ back to a conversation


def recorded_of_inputs(inputs: CaseInputs, facts: CaseFacts | None = None) -> Recorded:
    """The conversation that a case holds, with calls and replies counted from 1. Cost, tokens and times are not in a
    case."""
    facts = facts or CaseFacts()
    messages: list[Message] = []
    replies: dict[int, Message] = {}
    stops: dict[int, Stop] = {}
    calls: list[RecordedCall] = []
    for step in inputs.transcript:
        if step.assistant is None:
            messages.append(Message(role="user", parts=_parts_of(step.user or ""), tools=step.tools))
            continue
        turn = len(replies) + 1
        times_spoken = spoken_counts(messages)[-1] if messages else 0
        turn_calls = [
            _recorded_call(call, turn, f"call_{turn}_{place}", times_spoken) for place, call in enumerate(step.calls)
        ]
        replies[turn] = _reply_of(step, turn_calls)
        if step.stop is not None:
            stops[turn] = step.stop
        calls += turn_calls
        messages.append(replies[turn])
        if results := tuple(call.result for call in turn_calls if call.result):
            messages.append(Message(role="tool", parts=results))
    return Recorded(
        id=inputs.conversation,
        agent=inputs.agent,
        model=facts.model,
        status=facts.status,
        messages=tuple(messages),
        asked=tuple(message for message in messages if message.role == "user"),
        replies=replies,
        calls=tuple(calls),
        text=last_text(replies),
        metadata=facts.metadata,
        tenant=facts.tenant or None,
        stalled="stalled" in facts.labels,
        stops=stops,
        key=case_key(inputs),
    )


def case_key(inputs: CaseInputs) -> str:
    """The same for the same content, in every process."""
    content = json.dumps(inputs.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return f"{CASE}{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def _reply_of(step: CaseStep, calls: Sequence[RecordedCall]) -> Message:
    text = (Text(text=step.assistant),) if step.assistant else ()
    return Message(role="assistant", parts=(*text, *(call.call for call in calls)), author=step.agent)


def _recorded_call(case: CaseCall, turn: int, call_id: str, times_spoken: int) -> RecordedCall:
    call = ToolCall(call_id=call_id, name=case.tool, arguments=case.arguments)
    return RecordedCall(call, turn, _result_of(case, call), case.effect, times_spoken=times_spoken)


def _result_of(case: CaseCall, call: ToolCall) -> ToolResult | None:
    """As the model got it, but for the person's name."""
    decision = _decision_of(case)
    if decision and decision.verdict == "deny":
        return result_of_decision(call, AppliedDecision(decision))
    if case.result is None:
        return None
    content = _parts_of(case.result)
    result = ToolResult(call_id=call.call_id, name=call.name, content=content, is_error=case.is_error)
    if decision and decision.verdict == "approve":
        return with_approval(result, decision)
    return result.model_copy(update={"decision": decision})


def _decision_of(case: CaseCall) -> Decision | None:
    if case.decision is None:
        return None
    return Decision(verdict=VERDICTS[case.decision], at=SAID_AT, note=case.reason or None, arguments=case.edited_to)


def _parts_of(content: Content) -> tuple[ResultPart, ...]:
    if isinstance(content, str):
        return (Text(text=content),)
    return ToolResult.model_validate({"call_id": "", "content": content}).content
