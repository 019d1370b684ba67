"""What stands beside the parts of a message in its provider's own form: read, kept, and written for it alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn.formats import from_anthropic, from_openai_responses, to_anthropic, to_openai_responses
from tests.support.formats import FORMATS

CACHED = {"cache_control": {"type": "ephemeral"}}
CITED = {"citations": {"enabled": True}, "context": "Of 2026."}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBO"}
PDF_DATA = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}


def called_on(format_name: str) -> list[dict[str, Any]]:
    """An assistant's call `c1` of `look`, in a format's own words."""
    call: dict[str, dict[str, Any]] = {
        "anthropic_messages": {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
        },
        "openai_responses": {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        "gemini_generate_content": {
            "role": "model",
            "parts": [{"functionCall": {"id": "c1", "name": "look", "args": {}}, "thoughtSignature": "c2ln"}],
        },
    }
    return [call[format_name]]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "anthropic_messages",
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Read.", **CACHED},
                    {"type": "image", "source": PNG, **CACHED},
                    {"type": "document", "source": PDF_DATA, "title": "bill", **CITED, **CACHED},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi"}, **CITED},
                    {"type": "document", "source": {"type": "file", "file_id": "file_1"}, **CITED},
                ],
            },
        ),
        (
            "openai_chat",
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Read.", **CACHED},
                    {"type": "image_url", "image_url": {"url": "https://x.org/y.png", "detail": "low"}},
                    {"type": "file", "file": {"file_id": "file_1"}},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                ],
            },
        ),
        (
            "openai_responses",
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Read.", "prompt_cache_breakpoint": {"mode": "explicit"}},
                    {"type": "input_file", "file_url": "https://x.org/y.pdf", "detail": "high"},
                    {"type": "input_file", "file_id": "file_1"},
                    {"type": "input_image", "file_id": "file_2", "detail": "low"},
                ],
            },
        ),
    ],
)
def test_what_stands_beside_what_a_user_said_comes_back(name: str, said: dict[str, Any]) -> None:
    read, write = FORMATS[name]
    assert write(read([said])) == [said]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        (
            "anthropic_messages",
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "document", "source": PDF_DATA, **CITED}, {"type": "text", "text": "a"}],
                        **CACHED,
                    }
                ],
            },
        ),
        (
            "openai_responses",
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [
                    {"type": "input_text", "text": "Here:"},
                    {"type": "input_file", "file_id": "file_1"},
                    {"type": "input_image", "file_id": "file_2", "detail": "low"},
                ],
            },
        ),
        (
            "openai_responses",
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [{"type": "input_image", "image_url": "https://x.org/y.png", "detail": "low"}],
            },
        ),
        (
            "gemini_generate_content",
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "c1",
                            "name": "look",
                            "response": {"output": "Here:"},
                            "parts": [{"fileData": {"fileUri": "https://x.org/files/1", "mimeType": "image/png"}}],
                            "scheduling": "SILENT",
                        }
                    }
                ],
            },
        ),
    ],
)
def test_what_stands_beside_a_result_comes_back(name: str, result: dict[str, Any]) -> None:
    """Also a stored file, which once became the text of its JSON."""
    read, write = FORMATS[name]
    assert write(read([*called_on(name), result]))[-1] == result


def test_it_goes_to_its_own_provider_only() -> None:
    block = {"type": "document", "source": PDF_DATA, **CITED}
    (message,) = from_anthropic([{"role": "user", "content": [block]}])
    assert "Of 2026." not in json.dumps(to_openai_responses([message]))
    result = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_file", "file_id": "file_1"}]}
    messages = from_openai_responses([*called_on("openai_responses"), result])
    assert to_anthropic(messages)[-1]["content"][0]["content"] == '{"type":"input_file","file_id":"file_1"}'
