"""Responses in the background, over HTTP on loopback: begun once, whatever becomes of the connections."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from everturn import Message, Model, ModelSettings, Text, generate
from everturn.errors import ConnectionFailed, InvalidReply, RequestRefused, Unavailable
from everturn.providers import Delta, Request, ask
from everturn.tools.server_tools import UnsupportedParameter
from tests.support.background_server import BackgroundServer, Worked, says
from tests.support.bounds import Bounds
from tests.support.provider_server import Asked, ProviderServer, claude, message_item, response
from tests.support.vendors import openai
from tests.support.waiting import eventually

STORY = ("Once ", "upon ", "a ", "time.")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, bounds: Bounds) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    bounds(broken_seconds=0.01, poll_seconds=0.01)


@dataclass
class Kept:
    response_id: str = ""
    all: list[str] = field(default_factory=list)

    async def keep(self, response_id: str) -> None:
        self.response_id = response_id
        self.all.append(response_id)

    def forget(self) -> None:
        self.response_id = ""


def request(server: ProviderServer, *, name: str = "openai:gpt-5.5", stream: bool = True) -> Request:
    settings = ModelSettings(background=True, stream=stream)
    return Request(Model(name, base_url=server.base_url), [Message.user("Tell me a story")], settings=settings)


async def told(server: BackgroundServer, kept: Kept, *, stream: bool = True) -> tuple[str, str]:
    """The reply's text, and the text of its deltas."""
    deltas: list[Delta] = []
    reply = await ask(request(server, stream=stream), kept=kept, on_delta=deltas.append)
    return reply.text, "".join(delta.text for delta in deltas)


async def test_it_is_stored_begun_once_and_its_id_is_kept_at_once(go_on: threading.Event) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as server:
        kept = Kept()
        asking = asyncio.create_task(told(server, kept))
        await eventually(lambda: bool(kept.response_id))
        go_on.set()
        assert await asking == ("".join(STORY), "".join(STORY))
    assert kept.all == ["resp_1"]
    [body] = server.bodies
    assert (body["background"], body["store"], body["stream"]) == (True, True, True)
    assert body["include"] == ["reasoning.encrypted_content"]
    assert len(server.asked) == 1


async def test_a_stream_that_breaks_is_taken_up_after_the_last_event_and_nothing_is_told_twice() -> None:
    with BackgroundServer(says(*STORY)) as server:
        server.breaks_after = 3
        assert await told(server, Kept()) == ("".join(STORY), "".join(STORY))
        after = [int(request.query["starting_after"]) for request in server.asked_for("/resp_1")]
    assert server.begun == 1
    assert after == [2, 5]


async def test_a_server_that_begins_anew_when_it_is_asked_to_go_on_tells_nothing_twice() -> None:
    with BackgroundServer(says(*STORY)) as server:
        server.breaks_after = 5
        answered = server.answer

        def forgetful(asked: Asked) -> object:
            server.breaks_after = 5 if asked.method == "POST" else 100
            asked.query.pop("starting_after", None)
            return answered(asked)

        server.answer = forgetful  # type: ignore[assignment]
        assert await told(server, Kept()) == ("".join(STORY), "".join(STORY))
    assert server.begun == 1


async def test_another_try_picks_it_up_from_its_first_event() -> None:
    with BackgroundServer(says(*STORY)) as server:
        await told(server, kept := Kept())
        assert await told(server, kept) == ("".join(STORY), "".join(STORY))
        [picked_up] = server.asked_for("/resp_1")
    assert picked_up.query == {"stream": "true", "include[]": "reasoning.encrypted_content"}
    assert server.begun == 1


async def test_one_that_is_too_old_to_be_streamed_is_polled(go_on: threading.Event) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as server:
        server.breaks_after, server.streams = 4, False
        asking = asyncio.create_task(told(server, Kept()))
        await eventually(
            lambda: len([request for request in server.asked_for("/resp_1") if "stream" not in request.query]) > 2
        )
        go_on.set()
        text, _ = await asking
    assert text == "".join(STORY)
    assert server.begun == 1


async def test_streams_that_break_without_an_event_are_given_up_for_polls(go_on: threading.Event) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as server:
        server.breaks_after, server.silent = 5, True
        asking = asyncio.create_task(told(server, Kept()))
        await eventually(lambda: any("stream" not in request.query for request in server.asked_for("/resp_1")))
        go_on.set()
        assert (await asking)[0] == "".join(STORY)
    assert server.begun == 1


async def test_without_streams_it_is_polled_from_the_beginning() -> None:
    with BackgroundServer(says(*STORY)) as server:
        assert await told(server, Kept(), stream=False) == ("".join(STORY), "")
    assert server.begun == 1
    assert all("stream" not in one.query for one in server.asked)


@pytest.mark.parametrize("stream", [True, False])
async def test_one_that_failed_is_an_error_and_the_next_try_begins_another(*, stream: bool) -> None:
    def work(worked: Worked) -> None:
        error = {"code": "server_error", "message": "The machine burnt."}
        if worked.id == "resp_1":
            worked.end("failed", error=error)
        else:
            says(*STORY)(worked)

    with BackgroundServer(work) as server:
        kept = Kept()
        with pytest.raises(Unavailable, match="The machine burnt"):
            await told(server, kept, stream=stream)
        assert kept.response_id == ""
        assert (await told(server, kept, stream=stream))[0] == "".join(STORY)
    assert server.begun == 2


async def test_one_that_ran_out_of_tokens_is_a_reply_that_says_so() -> None:
    def work(worked: Worked) -> None:
        worked.end("incomplete", message_item("Once"), incomplete_details={"reason": "max_output_tokens"})

    with BackgroundServer(work) as server:
        reply = await ask(request(server), kept=Kept())
    assert (reply.text, reply.stop) == ("Once", "length")


async def test_one_that_is_gone_is_an_error_and_the_next_try_begins_another() -> None:
    with BackgroundServer(says(*STORY)) as server:
        kept = Kept("resp_of_yesterday")
        with pytest.raises(Unavailable, match=r"'resp_of_yesterday'.*no longer exists") as gone:
            await told(server, kept)
        assert gone.value.retry
        assert gone.value.status == 404
        assert (await told(server, kept))[0] == "".join(STORY)
    assert server.begun == 1


async def test_one_that_can_not_be_read_is_fetched_no_more() -> None:
    with BackgroundServer(lambda worked: worked.end("completed", output="nothing")) as server:
        kept = Kept()
        with pytest.raises(InvalidReply):
            await told(server, kept, stream=False)
        assert kept.response_id == ""


async def test_an_error_in_the_stream_is_not_the_end_of_the_response() -> None:
    def work(worked: Worked) -> None:
        worked.tell("error", code="stream_error", message="no more of this stream")
        worked.end("completed", message_item("All the same."))

    with BackgroundServer(work) as server:
        assert (await told(server, Kept()))[0] == "All the same."
    assert server.begun == 1


async def test_a_server_that_is_away_is_an_error_and_the_id_stays() -> None:
    with BackgroundServer(says(*STORY)) as server:
        kept = Kept()
        await told(server, kept)
    with pytest.raises(ConnectionFailed):
        await told(server, kept)
    assert kept.response_id == "resp_1"


@pytest.mark.parametrize("named", ["", "../../files", "a b", 7, None])
async def test_a_response_without_an_id_that_can_be_asked_for_is_an_error(named: object) -> None:
    with (
        ProviderServer(lambda _: {**response(), "id": named, "status": "queued"}) as server,
        pytest.raises(InvalidReply, match="has no response id"),
    ):
        await ask(request(server, stream=False), kept=Kept())
    assert len(server.asked) == 1


async def test_who_asks_once_and_goes_away_leaves_nothing_to_be_paid(go_on: threading.Event) -> None:
    with BackgroundServer(says(*STORY, go_on=go_on)) as server:
        model = Model("openai:gpt-5.5", base_url=server.base_url)
        deltas: list[Delta] = []
        settings = ModelSettings(background=True)
        asking = asyncio.create_task(generate(model, "A story", settings=settings, on_delta=deltas.append))
        await eventually(lambda: bool(deltas))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert server.responses["resp_1"].status == "cancelled"


async def test_generate_asks_in_the_background_too() -> None:
    with BackgroundServer(says(*STORY)) as server:
        server.breaks_after = 3
        model = Model("openai:gpt-5.5", base_url=server.base_url)
        reply = await generate(model, "A story", settings=ModelSettings(background=True))
    assert (reply.text, server.begun) == ("".join(STORY), 1)


async def test_a_provider_without_it_is_asked_as_ever_with_a_warning() -> None:
    with (
        ProviderServer(lambda _: claude({"type": "text", "text": "Hello."})) as server,
        pytest.warns(UnsupportedParameter, match="can't do background=True"),
    ):
        reply = await ask(request(server, name="anthropic:claude-sonnet-5"), kept=Kept())
    assert reply.message.parts == (Text(text="Hello."),)
    assert "background" not in server.bodies[0]


async def test_what_extra_asks_for_is_refused_with_its_cure() -> None:
    with BackgroundServer(says(*STORY)) as server:
        asked = Request(
            Model("openai:gpt-5.5", base_url=server.base_url),
            [Message.user("Hi")],
            settings=ModelSettings(extra={"background": True}),
        )
        with pytest.raises(RequestRefused) as refused:
            await ask(asked)
    assert "ModelSettings(background=True)" in (refused.value.cure or "")


async def test_the_server_of_these_tests_is_one_to_openais_own_library() -> None:
    """What it answers is read, followed and cancelled by the SDK as it is."""
    with BackgroundServer(says(*STORY)) as server:
        client = openai.AsyncOpenAI(api_key="sk-test", base_url=server.base_url)
        stream = await client.responses.create(model="m", input="Hi", background=True, store=True, stream=True)
        kinds = [event.type async for event in stream]
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        again = await client.responses.retrieve("resp_1", stream=True, starting_after=3)
        assert [event.sequence_number async for event in again] == [*range(4, len(kinds))]
        assert (await client.responses.retrieve("resp_1")).output_text == "".join(STORY)
        assert (await client.responses.cancel("resp_1")).status == "completed"
        await client.close()
