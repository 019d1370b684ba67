"""A turn's instructions and tools, if the agent's functions decided them: a digest with each turn, and the text once.

Decision 0026: the text is in the event of the first turn of a run that was asked with it. Of all such texts together, a
run's history holds so many bytes and no more.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from hashlib import blake2b
from typing import Any
from zlib import compress, decompress, error

from pydantic import Field, JsonValue

from everturn.records import Record
from everturn.sizes import MAX_PROMPT_BYTES, MAX_PROMPTS_BYTES

KNOWN = 8
"""How many texts of its history a conversation remembers. One that comes back later is written again."""


class PromptTool(Record):
    """A tool as the model was told of it."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class Prompt(Record):
    """A turn's instructions and tools."""

    instructions: str = ""
    tools: tuple[PromptTool, ...] = ()


class RecordedPrompt(Record):
    """The same, as a turn's event holds it."""

    digest: str
    packed: str = ""
    """Empty if an earlier turn of the run holds it, or if the run has no room for it."""

    @classmethod
    def from_prompt(cls, prompt: Prompt, *, known: tuple[str, ...], room: int | None) -> RecordedPrompt:
        """`known`: the digests of those that the run's history holds; `room`: the bytes left for them in it."""
        written = json.dumps(prompt.model_dump(mode="json"), ensure_ascii=False, sort_keys=True).encode(
            "utf-8", "replace"
        )
        digest = blake2b(written, digest_size=8).hexdigest()
        if digest in known:
            return cls(digest=digest)
        packed = b64encode(compress(written)).decode()
        fits = len(packed) <= min(MAX_PROMPT_BYTES, MAX_PROMPTS_BYTES if room is None else room)
        return cls(digest=digest, packed=packed if fits else "")

    def unpack_prompt(self) -> Prompt | None:
        """None if the text is not here, or can't be read."""
        if not self.packed:
            return None
        try:
            return Prompt.model_validate_json(decompress(b64decode(self.packed)))
        except (ValueError, error):
            return None


class KnownPrompts:
    """Those that a run's history holds."""

    def __init__(self) -> None:
        self._digests: tuple[str, ...] = ()
        self._bytes = 0

    def take_prompt(self, prompt: RecordedPrompt | None) -> None:
        if prompt and prompt.packed:
            self._digests = (*self._digests, prompt.digest)[-KNOWN:]
            self._bytes += len(prompt.packed)

    @property
    def request_fields(self) -> dict[str, Any]:
        """As the next turn's request says them."""
        room = max(0, MAX_PROMPTS_BYTES - self._bytes)
        if not self._digests:
            return {}
        return {"prompts": self._digests, "prompt_room": room}
