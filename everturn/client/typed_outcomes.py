"""An outcome whose output is of the agent's own type, for programs that have the Agent."""

from __future__ import annotations

from typing import Any, Generic

from pydantic import JsonValue

from everturn.agent import Agent
from everturn.errors import ConversationError
from everturn.records import Outcome
from everturn.tools.output_type import InvalidOutput, OutputT_co


class TypedOutcome(Outcome, Generic[OutputT_co]):
    """How a conversation ended. Ask with an Agent, not with its name, and `output` is of its `output` type; None unless
    the conversation is completed. Type checkers know it too."""

    output: OutputT_co | None = None  # type: ignore[assignment] # of any type, and not only JSON


def typed_outcome(outcome: Outcome, agent: Agent[OutputT_co] | None) -> TypedOutcome[OutputT_co]:
    """`agent`: the one that was asked; None if only its name is known, and the output then stays JSON. Raises
    ConversationError."""
    fields: dict[str, Any] = {name: getattr(outcome, name) for name in type(outcome).model_fields}
    if agent is not None and agent.output_adapter is not None and outcome.status == "completed":
        try:
            fields["output"] = typed_output(outcome.output, outcome.text, agent, conversation_id=outcome.id)
        except ConversationError:
            if outcome.output is not None:
                raise  # else an agent without a type has answered, or both were too long: the text is what there is
    typed: TypedOutcome[OutputT_co] = TypedOutcome.model_construct(set(outcome.model_fields_set), **fields)
    return typed


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
