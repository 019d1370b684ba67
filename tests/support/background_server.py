"""OpenAI's Responses in the background, on loopback: begun by POST, streamed and polled by GET, cancelled. What happens
in a response's life is for the test to say; it goes on whether anybody listens or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from everturn import Client
from everturn.activities.kept_response_ids import RESPONSE
from tests.support.provider_server import Answer, Asked, Json, ProviderServer, Status, message_item, response

WAIT_SECONDS = 180.0

FINAL = {"completed", "incomplete", "failed", "cancelled"}


@dataclass
class Worked:
    """One response, as the server holds it."""

    id: str
    events: list[Json] = field(default_factory=list)
    status: str = "queued"
    body: Json = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def tell(self, kind: str, **said: object) -> None:
        with self.changed:
            self.events.append({"type": kind, "sequence_number": len(self.events), **said})
            self.changed.notify_all()

    def end(self, status: str, *items: Json, **fields: object) -> None:
        """Once; what comes after a cancellation changes nothing."""
        with self.changed:
            if self.status in FINAL:
                return
            self.status, self.body = status, response(*items, id=self.id, status=status, **fields)
        self.tell(f"response.{status}", response=self.body)

    def as_json(self) -> Json:
        return self.body or {"id": self.id, "object": "response", "status": self.status, "output": [], "usage": None}


class BackgroundServer(ProviderServer):
    """`work` is given each response, in a thread of its own: it tells deltas, waits for what a test says, and ends
    it."""

    def __init__(self, work: Callable[[Worked], None]) -> None:
        super().__init__(self._answered)
        self._work = work
        self.responses: dict[str, Worked] = {}
        self.streams = True
        """False: GET answers `stream=true` as OpenAI does once a response is more than five minutes old."""
        self.breaks_after = 10**6
        """So many events a stream tells, then its connection is over."""
        self.silent = False
        """Streams that take a response up tell nothing, and are over."""

    @property
    def begun(self) -> int:
        """How often somebody paid."""
        return sum(one.path == "/responses" for one in self.asked)

    def asked_for(self, end: str, method: str = "GET") -> list[Asked]:
        return [one for one in self.asked if one.method == method and one.path.endswith(end)]

    def _answered(self, asked: Asked) -> Answer:
        if asked.path == "/responses":
            return self._begin(asked.body)
        _, _, response_id, *more = asked.path.split("/")
        found = self.responses.get(response_id)
        if found is None:
            return Status(404, {"error": {"message": f"Response with id '{response_id}' not found."}})
        if more == ["cancel"]:
            found.end("cancelled")
            return found.as_json()
        if asked.query.get("stream") != "true":
            return Status(200, found.as_json(), {"openai-poll-after-ms": "20"})
        if not self.streams:
            said = "This response can no longer be streamed because it is more than 5 minutes old."
            return Status(400, {"error": {"message": said, "type": "invalid_request_error"}})
        if self.silent:
            return iter(())
        return self._events(found, after=int(asked.query.get("starting_after", -1)))

    def _begin(self, body: Json) -> Answer:
        if not (body.get("background") and body.get("store")):
            return Status(400, {"error": {"message": "Background mode requires store to be true."}})
        worked = Worked(f"resp_{self.begun}")
        self.responses[worked.id] = worked
        for kind in ("response.created", "response.queued"):
            worked.tell(kind, response=worked.as_json())
        worked.status = "in_progress"
        threading.Thread(target=self._work, args=(worked,), daemon=True).start()
        return self._events(worked, after=-1) if body.get("stream") else worked.as_json()

    def _events(self, worked: Worked, *, after: int) -> Iterator[Json]:
        for told, place in enumerate(range(after + 1, 10**6)):
            with worked.changed:
                if not worked.changed.wait_for(lambda place=place: place < len(worked.events), WAIT_SECONDS):  # type: ignore[misc]
                    return
            if told >= self.breaks_after:
                return
            yield worked.events[place]
            if worked.events[place]["type"].removeprefix("response.") in FINAL:
                return


def says(*pieces: str, go_on: threading.Event | None = None) -> Callable[[Worked], None]:
    """Work that tells these pieces of a text; before the last one it waits for the test."""

    def work(worked: Worked) -> None:
        item = message_item("".join(pieces))
        worked.tell("response.output_item.added", output_index=0, item={**item, "content": []})
        for piece in pieces[:-1]:
            worked.tell("response.output_text.delta", output_index=0, content_index=0, delta=piece)
        if go_on is not None:
            go_on.wait(WAIT_SECONDS)
        worked.tell("response.output_text.delta", output_index=0, content_index=0, delta=pieces[-1])
        worked.tell("response.output_item.done", output_index=0, item=item)
        worked.end("completed", item)

    return work


async def is_kept(client: Client, conversation_id: str) -> bool:
    """Whether Temporal has the id of a response, for the next try of the turn that runs."""
    described = await client.temporal.get_workflow_handle(conversation_id).describe()
    for pending in described.raw_description.pending_activities:
        details = await client.temporal.data_converter.decode(pending.heartbeat_details.payloads)
        if details and (details[0] or {}).get(RESPONSE):
            return True
    return False
