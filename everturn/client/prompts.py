"""The instructions and tools that a turn's model call had, read from the history: see decision 0026."""

from __future__ import annotations

from dataclasses import dataclass

import temporalio.client

from everturn.client.followed_runs import FollowedRuns
from everturn.errors import ConversationError, NotFound
from everturn.history.reader import read_steps
from everturn.history.steps import TurnCompleted
from everturn.prompts import Prompt, PromptTool, RecordedPrompt
from everturn.temporal import temporal_errors


@dataclass(frozen=True, kw_only=True)
class TurnPrompt:
    """What the model was sent in a turn besides the messages."""

    turn: int
    digest: str
    """Equal for turns with the same instructions and tools."""
    instructions: str
    tools: tuple[PromptTool, ...]


class AskedTurns:
    """The instructions and tools of a conversation's turns."""

    def __init__(self, temporal: temporalio.client.Client, conversation_id: str) -> None:
        self.id = conversation_id
        self._temporal = temporal
        self._runs = FollowedRuns(temporal, conversation_id)

    async def prompt(self, turn: int | None = None) -> TurnPrompt:
        """The instructions and tools of a turn, if functions of its agent chose them; `turn` None: the last answered
        turn. Reads the history: needs no worker.

        Raises NotFound if there is no such turn, or if no function chose them: then they are those in the worker's
        code. Raises ConversationError if the run had no room for the text: then only its digest is known.
        """
        for run_id in reversed(await self._runs.list_run_ids()):
            prompts: dict[int, RecordedPrompt | None] = {}
            texts: dict[str, Prompt] = {}
            with temporal_errors.explained(self._temporal, self.id):
                async for step in read_steps(self._temporal, self.id, run_id=run_id):
                    if not isinstance(step, TurnCompleted) or step.request.summarise:
                        continue
                    recorded = prompts[step.request.turn] = step.reply.prompt
                    if recorded and (text := recorded.unpack_prompt()):
                        texts[recorded.digest] = text
            wanted = max(prompts, default=None) if turn is None else turn
            if wanted in prompts:
                return self._turn_prompt(wanted, prompts[wanted], texts)
        which = "The conversation has no turn that was answered" if turn is None else f"It has no answered turn {turn}"
        raise NotFound(f"{which}: {self.id!r}.", cure="Turns count from 1; `everturn export` lists them.")

    def _turn_prompt(self, turn: int, recorded: RecordedPrompt | None, texts: dict[str, Prompt]) -> TurnPrompt:
        if recorded is None:
            raise NotFound(
                f"No function chose the instructions or tools of turn {turn} of conversation {self.id!r}.",
                cure="It was asked with the instructions and tools that its agent has in the worker's code.",
            )
        text = texts.get(recorded.digest)
        if text is None:
            raise ConversationError(
                f"For turn {turn} of conversation {self.id!r}, only the prompt's digest is recorded: "
                f"{recorded.digest}.",
                cure="Its run had no room left for more prompts: see decision 0026.",
            )
        return TurnPrompt(turn=turn, digest=recorded.digest, instructions=text.instructions, tools=text.tools)
