"""What the messages of the four protocols may hold. Anything else is refused, by its name: what a reader does not know
would be left out in silence, or read as something that it is not.

From the request and reply types of openai 3.52, anthropic 2.11 and google-genai 3.4; beside them, what other servers of
the protocol write (Mistral, OpenRouter, vLLM, DashScope, Groq).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from everturn.text.shortening import clipped

_CHAT_BLOCKS = """
    text image_url input_audio file refusal
    thinking reference document document_url video video_url audio audio_url image input_file input_text output_text
"""
CHAT_BLOCKS: Final = frozenset(_CHAT_BLOCKS.split())

_CHAT_SAYS = "content tool_calls function_call refusal audio reasoning reasoning_content reasoning_details images"
CHAT_SAYS: Final = frozenset(_CHAT_SAYS.split())
"""A Chat message of an assistant has one of these."""

_CHAT_FIELDS = "role content name type id tool_call_id cache_control is_error status"
CHAT_FIELDS: Final = frozenset(_CHAT_FIELDS.split())
"""What a Chat message of a user, a tool or of the system has."""

_RESPONSES_BLOCKS = """
    input_text output_text text input_image input_file input_audio input_video refusal summary_text reasoning_text
    computer_screenshot encrypted_content
"""
RESPONSES_BLOCKS: Final = frozenset(_RESPONSES_BLOCKS.split())

_RESPONSES_ITEMS = """
    message reasoning compaction compaction_trigger compaction_summary item_reference additional_tools
    configuration_update mcp_approval_request mcp_approval_response mcp_list_tools program program_output
    apply_patch_call code_interpreter_call computer_call custom_tool_call file_search_call function_call
    image_generation_call local_shell_call mcp_call shell_call tool_search_call web_search_call
    apply_patch_call_output computer_call_output custom_tool_call_output function_call_output local_shell_call_output
    shell_call_output tool_search_output
"""
RESPONSES_ITEMS: Final = frozenset(_RESPONSES_ITEMS.split())

_ANTHROPIC_BLOCKS = """
    text image document search_result thinking redacted_thinking tool_use tool_result server_tool_use container_upload
    compaction fallback mcp_tool_use mcp_tool_listing tool_addition tool_removal tool_reference browser_state
"""
ANTHROPIC_BLOCKS: Final = frozenset(_ANTHROPIC_BLOCKS.split())
ANTHROPIC_RESULT: Final = "_tool_result"
"""How the types of results of Anthropic's own tools end."""

_GEMINI_PARTS = """
    text thought inlineData fileData functionCall functionResponse executableCode codeExecutionResult toolCall
    toolResponse thoughtSignature videoMetadata audioMetadata audioTranscription documentMetadata mediaProcessing
    mediaResolution partMetadata speechMetadata spreadsheetMetadata
"""
GEMINI_PARTS: Final = frozenset(_GEMINI_PARTS.split())

_LIBRARIES: Final = (
    (frozenset({"part_kind"}), "pydantic-ai", "write a Message for each, with its Text, ToolCall and ToolResult parts"),
    (frozenset({"lc", "kwargs"}), "LangChain", "langchain_core.messages.convert_to_openai_messages() converts it"),
    (frozenset({"additional_kwargs"}), "LangChain or LlamaIndex", "convert it to OpenAI's messages there"),
    (frozenset({"toolCallId"}), "the AI SDK", "write a Message for each, with Text, ToolCall and ToolResult parts"),
)
"""Fields by which other libraries' own forms are known, and what to do with them."""
_LANGCHAIN: Final = ("human", "ai", "chat", "AIMessageChunk", "HumanMessageChunk", "remove")


def check_kinds(
    items: Iterable[Mapping[str, Any]], known: frozenset[str], what: str, *, ends: str = "\0", field: str = "type"
) -> None:
    """Raises ValueError for an item of another kind. `ends`: kinds that end so are known, too."""
    for item in items:
        kind = item.get(field)
        if not isinstance(kind, str) or not (kind in known or kind.endswith(ends)):
            raise ValueError(_unknown_text(item, what, f"{field}={kind!r:.100}" if kind is not None else f"no {field}"))


def check_fields(item: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Raises ValueError for a field with a value that the reader would leave out."""
    if strange := [name for name, value in item.items() if name not in known and value not in (None, "", [], {})]:
        raise ValueError(_unknown_text(item, what, f"the field {strange[0]!r:.100}"))


def check_says(item: Mapping[str, Any], any_of: frozenset[str], what: str) -> None:
    """Raises ValueError for a message that has none of the fields that could say something."""
    if not any_of & item.keys():
        raise ValueError(_unknown_text(item, what, f"the fields {', '.join(map(repr, sorted(item))):.200}"))


def check_item_type(item: Mapping[str, Any]) -> None:
    """Of Responses; other vendors' servers have items such as `openrouter:web_search`. Raises ValueError."""
    kind = item.get("type", "message")
    if not isinstance(kind, str) or not (kind in RESPONSES_ITEMS or ":" in kind):
        raise ValueError(_unknown_text(item, "a Responses item", f"type={kind!r:.100}"))


def _unknown_text(item: Mapping[str, Any], what: str, which: str) -> str:
    text = f"{what} has {which}, which is not a known one: {clipped(repr(dict(item)), 80)}"
    names = set(_names_in(item))
    for marks, library, way in _LIBRARIES:
        if marks & names:
            return f"{text}. It looks like {library}: {way}"
    if item.get("type") in _LANGCHAIN:
        return f"{text}. It looks like LangChain: langchain_core.messages.convert_to_openai_messages() converts it"
    return text


def _names_in(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _names_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _names_in(inner)
