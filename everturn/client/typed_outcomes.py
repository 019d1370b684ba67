"""An outcome whose output can be had as the agent's own type, for programs that have the Agent."""

from __future__ import annotations

from typing import Any, Generic

from pydantic import JsonValue, PrivateAttr

from everturn.agent import Agent
from everturn.errors import ConversationError
from everturn.records import Outcome
from everturn.tools.output_type import InvalidOutput, OutputT_co


class OutcomeWithValue(Outcome, Generic[OutputT_co]):
    """How a conversation ended. `output` is JSON, as it is recorded; ask with an Agent, not with its name, and `value`
    is of its `output` type. Type checkers know it, too."""

    _agent: Any = PrivateAttr(default=None)
    """The Agent that was asked; None if only its name is known."""

    def __eq__(self, other: object) -> bool:
        """Two outcomes are equal if they say the same, whoever asked for them."""
        return isinstance(other, Outcome) and _fields_of(self) == _fields_of(other)

    __hash__ = Outcome.__hash__

    @property
    def value(self) -> OutputT_co | None:
        """The output as the agent's type; None unless the conversation is completed, or if an agent without a type has
        answered. JSON if only the agent's name is known. Raises ConversationError if it is no value of this type:
        another agent may have answered, after a handoff or under another version."""
        if self._agent is None or self._agent.output_adapter is None:
            return self.output  # type: ignore[return-value] # the type is Any, then
        if self.status != "completed":
            return None
        try:
            value: OutputT_co = typed_output(self.output, self.text, self._agent, conversation_id=self.id)
        except ConversationError:
            if self.output is None:  # an agent without a type has answered, or both were too long
                return None
            raise
        return value


class TypedOutcome(OutcomeWithValue[OutputT_co]):
    """How a conversation ended, in a workflow. Ask with an Agent, not with its name, and `output` is of its `output`
    type, as `value` is; None unless the conversation is completed. Type checkers know it, too."""

    output: OutputT_co | None = None  # type: ignore[assignment] # of any type, and not only JSON

    @property
    def value(self) -> OutputT_co | None:
        """The output."""
        return self.output


def with_value(outcome: Outcome, agent: Agent[OutputT_co] | None) -> OutcomeWithValue[OutputT_co]:
    """`agent`: the one that was asked; None if only its name is known."""
    valued: OutcomeWithValue[OutputT_co] = OutcomeWithValue.model_construct(
        set(outcome.model_fields_set), **_fields_of(outcome)
    )
    valued._agent = agent
    return valued


def typed_outcome(outcome: Outcome, agent: Agent[OutputT_co] | None) -> TypedOutcome[OutputT_co]:
    """As `with_value`, with the value as its `output`. Raises ConversationError."""
    fields = {**_fields_of(outcome), "output": with_value(outcome, agent).value}
    typed: TypedOutcome[OutputT_co] = TypedOutcome.model_construct(set(outcome.model_fields_set), **fields)
    return typed


def _fields_of(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in type(outcome).model_fields}


def typed_output(output: JsonValue, text: str, agent: Agent[OutputT_co], *, conversation_id: str) -> OutputT_co:
    """A reply's output as the agent's type. `text`: the reply as the model wrote it. Raises ConversationError if it is
    no value of this type: another agent may have answered, after a handoff or under another version."""
    try:
        value: OutputT_co = agent.typed_output(output, text)
    except InvalidOutput as error:
        raise ConversationError(
            f"The output of conversation {conversation_id!r} can't be read as the output type of the agent "
            f"{agent.name!r}: {error}.".replace("..", "."),
            cure=f"client.conversation({conversation_id!r}) has it as JSON: `(await conversation.outcome()).output`.",
        ) from error
    return value
