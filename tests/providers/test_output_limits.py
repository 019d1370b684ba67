"""A server whose window is smaller than what is asked for is asked for what its error names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from everturn.errors import ContextTooLong, ProviderError
from everturn.models import Model, ModelSettings
from everturn.providers import output_limits
from everturn.providers.generate import generate
from everturn.providers.output_limits import OutputLimit, lower_limits, named_in
from tests.support.provider_server import Answer, Asked, ProviderServer, Status

VLLM = (
    "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length "
    "is {window} tokens "
    "and your request has {input} input tokens ({asked} > {window} - {input})."
)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key-0000")
    yield
    output_limits._windows.clear()
    output_limits._most.clear()


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        (VLLM.format(asked=32000, window=4096, input=25), OutputLimit(4071, 4096)),
        (f"litellm.BadRequestError: {VLLM.format(asked=32000, window=4096, input=25)}", OutputLimit(4071, 4096)),
        (
            "You passed 3001 input tokens and requested 32000 output tokens. However, the model's context length "
            "is only "
            "4096 tokens, resulting in a maximum input length of 0 tokens.",
            OutputLimit(1095, 4096),
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 32025 tokens (25 in the "
            "messages, "
            "32000 in the completion).",
            OutputLimit(4071, 4096),
        ),
        (
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 32790 tokens "
            "(22 of text "
            "input, 32768 in the output).",
            OutputLimit(32746, 32768),
        ),
        (
            "This endpoint's maximum context length is 204800 tokens. However, you requested about 250598 tokens "
            "(130395 of text input, 4203 of tool input, 116000 in the output). Please reduce the length of either one.",
            OutputLimit(70202, 204800),
        ),
        (
            "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is "
            "from 1 (inclusive) to 65537 (exclusive). Update the value and try again.",
            OutputLimit(65536),
        ),
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a "
            "total of 4126 "
            "tokens: 30 tokens from the input messages and 4096 tokens for the completion.",
            OutputLimit(4066, 4096),
        ),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 30 `inputs` tokens and 32000 `max_new_tokens`",
            OutputLimit(4066, 4096),
        ),
        (
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or "
            "`max_tokens` and try again",
            OutputLimit(11760, 200000),
        ),
        (
            "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for claude-x",
            OutputLimit(8192),
        ),
        ("max_tokens is too large: 32000. This model supports at most 16384 completion tokens", OutputLimit(16384)),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", OutputLimit(8192)),
        ("`max_tokens` must be less than or equal to `8192`, the maximum value", OutputLimit(8192)),
        (  # vLLM 0.32.0, as it answered
            "max_completion_tokens=32000 cannot be greater than max_model_len=4096. Please request fewer output "
            "tokens. (parameter=max_completion_tokens, value=32000)",
            OutputLimit(4096),
        ),
        (VLLM.format(asked=32000, window=4096, input=4000), None),  # no room for a reply
        ("prompt is too long: 210000 tokens > 200000 maximum", None),
    ],
)
def test_what_an_error_names(message: str, limit: OutputLimit | None) -> None:
    assert named_in(message) == limit


def test_a_budget_of_thought_stays_below_it() -> None:
    body = {"max_tokens": 32000, "thinking": {"type": "enabled", "budget_tokens": 16000}}
    assert lower_limits(body, 4096) == {"max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 4095}}
    assert lower_limits(body, 512) == {"max_tokens": 512}
    assert lower_limits({"generationConfig": {"maxOutputTokens": 9000}}, 512) == {
        "generationConfig": {"maxOutputTokens": 512}
    }


def window_of(window: int, *, input_tokens: int) -> Callable[[Asked], Answer]:
    """A Messages server that counts input and output together."""

    def answer(asked: Asked) -> Answer:
        wanted = asked.body["max_tokens"]
        if wanted > window - input_tokens:
            message = VLLM.format(asked=wanted, window=window, input=input_tokens)
            return Status(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})
        return {"type": "message", "content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn"}

    return answer


async def test_a_request_that_asks_for_too_much_is_sent_once_more_and_the_next_one_is_right_at_first() -> None:
    with ProviderServer(window_of(4096, input_tokens=25)) as server:
        model = Model("anthropic:qwen3", base_url=server.base_url)
        settings = ModelSettings(stream=False)
        for _ in range(2):
            assert (await generate(model, "Go.", settings=settings)).text == "Hi."
    asked = [body["max_tokens"] for body in server.bodies]
    assert (len(asked), asked[1]) == (3, 4071)
    assert 3900 < asked[2] <= 4071


async def test_an_input_that_leaves_no_room_is_too_long_and_asked_once() -> None:
    with ProviderServer(window_of(4096, input_tokens=4000)) as server, pytest.raises(ContextTooLong):
        await generate(Model("anthropic:qwen3", base_url=server.base_url), "Go.", settings=ModelSettings(stream=False))
    assert len(server.bodies) == 1


async def test_a_server_that_refuses_what_it_named_is_asked_twice_and_no_more() -> None:
    def answer(asked: Asked) -> Answer:
        message = VLLM.format(asked=asked.body["max_tokens"], window=4096, input=25)
        return Status(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})

    with ProviderServer(answer) as server, pytest.raises(ProviderError):
        await generate(Model("anthropic:qwen3", base_url=server.base_url), "Go.", settings=ModelSettings(stream=False))
    assert len(server.bodies) == 2
