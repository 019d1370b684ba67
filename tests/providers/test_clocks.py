"""What a provider keeps expires by its own clock: a worker's may be hours off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from everturn.errors import Unavailable
from everturn.models import Model, ModelSettings
from everturn.providers import ask, connections
from everturn.providers.base import Request
from everturn.records import Document, Message, Reply, Text

HOUR = timedelta(hours=1)


class Provider:
    """Speaks Anthropic Messages and Chat Completions on loopback; its clock is `ahead` of ours."""

    def __init__(self, *, ahead: timedelta) -> None:
        self.ahead = ahead
        self.expires_at = self.now + 5 * HOUR
        """The container's, and the sound's."""
        self.received: list[dict[str, Any]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.received.append(body)
                status, answer = provider.answer(body)
                content = json.dumps(answer).encode()
                self.send_response_only(status)
                self.send_header("Date", format_datetime(provider.now, usegmt=True))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        alive = self.now < self.expires_at + HOUR
        if "max_tokens" not in body:
            audio = {"id": "sound", "data": "UklG", "expires_at": self.expires_at.timestamp(), "transcript": "Hello."}
            message = {"role": "assistant", "content": None, "audio": audio}
            return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}
        if body.get("container") and not alive:
            return 500, {"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}
        container = {"id": "box", "expires_at": self.expires_at.isoformat()}
        content = [{"type": "text", "text": "Done."}]
        return 200, {"type": "message", "content": content, "stop_reason": "end_turn", "container": container}


@pytest.fixture
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    one = Provider(ahead=request.param)
    thread = Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield one
    one.server.shutdown()
    thread.join()
    one.server.server_close()


@pytest.fixture(autouse=True)
async def _connections(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    yield
    await connections.aclose()


async def asked(provider: Provider, model: str, *said: Message) -> Reply:
    settings = ModelSettings(stream=False)
    address = provider.base_url + ("/v1" if "chat" in model else "")
    return await ask(Request(Model(model, base_url=address), [Message.user("?"), *said], settings=settings))


CLAUDE = "anthropic:claude-opus-5"
AUDIO = "openai-chat:gpt-audio"

off = pytest.mark.parametrize(
    "provider", [-9 * HOUR, timedelta(), 9 * HOUR], ids=["we are ahead", "alike", "we are behind"], indirect=True
)


@off
async def test_a_container_that_lives_by_the_providers_clock_is_asked_for_again(provider: Provider) -> None:
    first = await asked(provider, CLAUDE)
    await asked(provider, CLAUDE, first.message, Message.user("And?"))
    assert provider.received[1]["container"] == "box"


@off
async def test_one_that_is_gone_by_the_providers_clock_is_not(provider: Provider) -> None:
    provider.expires_at = provider.now - 2 * HOUR
    first = await asked(provider, CLAUDE)
    await asked(provider, CLAUDE, first.message, Message.user("And?"))
    assert "container" not in provider.received[1]


@off
async def test_a_new_process_is_told_the_time_by_the_refusal_and_its_next_try_passes(provider: Provider) -> None:
    reply = await asked(provider, CLAUDE)
    provider.expires_at = provider.now - 2 * HOUR
    old = Provider.answer(provider, {"max_tokens": 1})[1]["container"]
    message = reply.message.model_copy(update={"parts": tuple(_with_container(reply.message, old))})
    fresh = f"{provider.base_url}/"  # an address that has told this process nothing
    request = Request(
        Model(CLAUDE, base_url=fresh),
        [Message.user("?"), message, Message.user("And?")],
        settings=ModelSettings(stream=False),
    )
    with pytest.raises(Unavailable):
        await ask(request)
    assert (await ask(request)).text == "Done."
    assert ["container" in body for body in provider.received[1:]] == [True, False]


def _with_container(message: Message, container: dict[str, Any]) -> Iterator[Any]:
    for part in message.parts:
        held = not isinstance(part, Text)
        yield part.model_copy(update={"data": {"container": container}}) if held else part


@off
@pytest.mark.parametrize("lives", [True, False])
async def test_a_sound_goes_back_by_its_id_as_long_as_it_lives_by_the_providers_clock(
    provider: Provider, lives: bool
) -> None:
    provider.expires_at = provider.now + (HOUR if lives else -HOUR)
    first = await asked(provider, AUDIO)
    assert any(isinstance(part, Document) for part in first.message.parts)
    await asked(provider, AUDIO, first.message, Message.user("And?"))
    sent = provider.received[1]["messages"][1]
    assert sent.get("audio") == ({"id": "sound"} if lives else None)
