"""Tools that a provider defines and that its caller runs: a shell, a computer, an editor, an approval.

Their definitions are raw dicts among an agent's tools. This module says under which names a model calls
them, and makes the tools that serve these calls: a function of `handlers=`, else whoever answers them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from everturn.errors import InvalidAgent, InvalidTool
from everturn.models import Model
from everturn.tools.context import ToolContext
from everturn.tools.given_schema import given_arguments, whatever_it_takes
from everturn.tools.server_tools import ServerTool, WebSearch
from everturn.tools.signature import UntypedParameter
from everturn.tools.tool import NO_TIMEOUT, Tool, tool
from everturn.validation.spelling import nearest_name

MCP_APPROVAL: Final = "mcp_approval_request"
MOONSHOT_SEARCH: Final = "$web_search"

_ANTHROPIC = re.compile(r"(bash|text_editor|computer|memory)_\d{8}")
_TOOLSET = re.compile(r"(computer|browser)_toolset_\d{8}")
_DATED = re.compile(r"_\d{8}$")
_OPENAI: Mapping[str, str] = {
    "shell": "shell",
    "local_shell": "local_shell",
    "apply_patch": "apply_patch",
    "computer": "computer",
    "computer_use_preview": "computer",
}
"""The name of the calls here, by the type of the definition."""

_MOUSE_AND_KEYS: Final = (
    *("key", "hold_key", "type", "mouse_move", "left_mouse_down", "left_mouse_up", "left_click", "left_click_drag"),
    *("right_click", "middle_click", "double_click", "triple_click", "scroll", "wait", "screenshot", "zoom"),
)
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "computer": (*_MOUSE_AND_KEYS, "cursor_position"),
    "browser": (
        *_MOUSE_AND_KEYS,
        *("navigate", "list_tabs", "new_tab", "switch_tab", "close_tab", "read_page", "get_page_text", "read_console"),
        *("read_network", "find", "form_input", "file_upload", "scroll_to", "hover", "javascript_exec"),
    ),
}
"""The tools in Anthropic's toolsets of 2026-08-01 (anthropic 2.14.0, *_MEMBER_NAME_VALUES): a model calls each by its
own name, with the toolset's beside it."""
_OFF_UNLESS_ENABLED: Final = frozenset({"file_upload", "javascript_exec", "read_console", "read_network"})
_CONFIRMED: Final = frozenset({"file_upload", "javascript_exec"})
"""What Anthropic wants a person to confirm (anthropic 2.14.0, _data/browser_toolset_members.py)."""

_IN_A_BROWSER: Final = (
    *("open_web_browser", "wait_5_seconds", "go_back", "go_forward", "search", "navigate", "click_at", "hover_at"),
    *("type_text_at", "key_combination", "scroll_document", "scroll_at", "drag_and_drop"),
)
"""The functions of Gemini's computer use."""

_ANY: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_QUICK = timedelta(seconds=10)

Handler = Callable[..., Any]
"""A function, sync or async, or a `@tool`: it gets a call's arguments by name, as the provider names them."""


def called_as(item: Mapping[str, Any]) -> tuple[str, ...]:
    """The names under which a model calls the tools of this definition; none if the provider runs them itself."""
    kind = item.get("type")
    if kind == "custom":
        inner = item.get("custom")
        return _name_in(inner if isinstance(inner, Mapping) else item)
    if kind == "builtin_function":  # Moonshot's: it runs them after it gets its own arguments back
        return _name_in(item.get("function"))
    if kind == "mcp":
        if item.get("require_approval") == "never":
            return ()
        return (MCP_APPROVAL,)
    if kind == "shell" and _in_container(item):
        return ()
    if isinstance(kind, str) and _ANTHROPIC.fullmatch(kind):
        return _name_in(item)
    if toolset := toolset_of(item):
        return _offered_members(toolset, item.get("configs"))
    if isinstance(kind, str) and kind in _OPENAI:
        return (_OPENAI[kind],)
    browser = item.get("computerUse", item.get("computer_use"))
    if isinstance(browser, Mapping):
        without = browser.get("excludedPredefinedFunctions") or browser.get("excluded_predefined_functions") or ()
        return tuple(name for name in _IN_A_BROWSER if name not in without)
    return ()


def _name_in(definition: object) -> tuple[str, ...]:
    if isinstance(definition, Mapping) and isinstance(name := definition.get("name"), str):
        return (name,)
    return ()


def toolset_of(item: Mapping[str, Any]) -> str:
    """Which of Anthropic's toolsets this definition is, 'computer' or 'browser'; empty for any other."""
    match = _TOOLSET.fullmatch(str(item.get("type")))
    if match is None:
        return ""
    return match[1]


def member_name(toolset: str, name: str, *, taken_names: Collection[str]) -> str:
    """The name here of a tool of a toolset. It is the model's own, unless another tool has that: two toolsets share
    most of theirs, and an agent may have its own `find`."""
    if name in taken_names:
        return f"{toolset}_{name}"
    return name


def wire_name_of_member(toolset: str, name: str) -> str:
    """The name that the model called it by."""
    own = name.removeprefix(f"{toolset}_")
    if own in _MEMBERS.get(toolset, ()):
        return own
    return name


def names_beside(toolset: str, raw_tools: Sequence[Mapping[str, Any]], own: Iterable[str]) -> frozenset[str]:
    """The names that a toolset's tools may not have: of the agent's own tools, and of what else is defined. If both
    toolsets are there, the computer's keep their names, in whatever order they are."""
    others = (item for item in raw_tools if toolset_of(item) in {"", "computer"} - {toolset})
    return frozenset({*own, *(name for item in others for name in called_as(item))})


def _offered_members(toolset: str, configs: object) -> tuple[str, ...]:
    """The tools of the toolset that the model is offered."""
    given = configs if isinstance(configs, Mapping) else {}

    def is_enabled(name: str) -> bool:
        config = given.get(name)
        if isinstance(config, Mapping) and (wanted := config.get("enabled")) is not None:
            return bool(wanted)
        return name not in _OFF_UNLESS_ENABLED

    return tuple(filter(is_enabled, _MEMBERS[toolset]))


def custom_names(raw_tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The custom tools among these: they take a text, and their calls are the caller's to answer."""
    return frozenset(name for item in raw_tools if item.get("type") == "custom" for name in called_as(item))


def in_a_browser(name: str) -> bool:
    """Whether it is a function of Gemini's computer use."""
    return name in _IN_A_BROWSER


def tools_of(
    raw_tools: Sequence[Mapping[str, Any]], handlers: Mapping[str, Handler], *, other_names: Iterable[str] = ()
) -> Iterator[Tool]:
    """The tools that serve the calls of these, one for each name. `other_names`: the names of the agent's other tools.
    Raises InvalidTool."""
    names: set[str] = set()
    for item in raw_tools:
        if toolset := toolset_of(item):
            yield from _toolset_tools(
                toolset, item, handlers, taken_names=names_beside(toolset, raw_tools, other_names)
            )
            continue
        for name in called_as(item):
            if name not in names:
                names.add(name)
                yield _serving_tool(name, item, _find_handler(name, item, handlers))


def handler_keys(item: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys for its handler in `handlers=`: the name of its calls, its type, its type without the date."""
    names = called_as(item)
    if not names:
        return ()
    if toolset := toolset_of(item):
        prefixed = (f"{toolset}_{name}" for name in names)
        return (*names, *prefixed, toolset, str(item.get("type")), f"{toolset}_toolset")
    if "computerUse" in item or "computer_use" in item:
        return (*names, "computer_use")
    kind = str(item.get("type"))
    if kind in {"custom", "mcp"}:
        return names
    return (*names, kind, _DATED.sub("", kind))


def check_handlers(agent: str, handlers: object, known: Sequence[str]) -> Mapping[str, Handler]:
    """Raises InvalidAgent if it is not a mapping, or has a name that none of the agent's tools has."""
    if not isinstance(handlers, Mapping):
        raise InvalidAgent(
            f"Agent {agent!r} has handlers={handlers!r}, of type {type(handlers).__name__}.",
            cure="Write handlers={'bash': run_bash}.",
        )
    for name in handlers:
        if name not in known:
            near = nearest_name(str(name), known)
            cure = "None of its tools takes a handler."
            if known:
                cure = f"They are called {', '.join(sorted(set(known)))}."
            if near:
                cure = f"Did you mean {near!r}? {cure}"
            raise InvalidAgent(f"Agent {agent!r} has a handler for {name!r}, but no tool of that name.", cure=cure)
    return handlers


def tool_from_handler(handler: Handler, name: str, *, parameters: Mapping[str, Any] | None = None) -> Tool:
    """The tool of a handler, under this name. Raises InvalidTool."""
    if isinstance(handler, Tool):
        if not handler.is_function:
            raise InvalidTool(
                f"The handler of {name!r} is {handler!r}, which a worker can't run.", cure="Take a function."
            )
        return replace(handler, name=name, provider_tool=True)
    if parameters is None:
        parameters = whatever_it_takes(handler, context_type=ToolContext)
    with warnings.catch_warnings():  # the provider tells the model what to send, so the signature need not
        warnings.simplefilter("ignore", UntypedParameter)
        handler_tool: Tool = tool(handler, name="handler", parameters=parameters)
    return replace(handler_tool, name=name, provider_tool=True)


def own_searches(models: Iterable[Model], served: Iterable[ServerTool], tools: Iterable[Tool]) -> Iterator[Tool]:
    """What answers the calls of Moonshot's search, for an agent of its models that is given a WebSearch."""
    searches = any(isinstance(tool, WebSearch) for tool in served)
    has_own = MOONSHOT_SEARCH in {tool.name for tool in tools}
    if searches and not has_own and any(model.provider == "moonshot" for model in models):
        yield _serving_tool(MOONSHOT_SEARCH, {"type": "builtin_function"}, None)


def _toolset_tools(
    toolset: str, item: Mapping[str, Any], handlers: Mapping[str, Handler], *, taken_names: Collection[str]
) -> Iterator[Tool]:
    """A tool for each of the toolset's. Its own handler goes before the toolset's, which gets its name as `action`."""
    for member in called_as(item):
        name = member_name(toolset, member, taken_names=taken_names)
        keys = [f"{toolset}_{member}"]
        if name == member:
            keys.append(member)
        handler = next((handlers[key] for key in keys if key in handlers), None)
        whole = (toolset, str(item.get("type")), f"{toolset}_toolset")
        if handler is None:
            handler = next((handlers[key] for key in whole if key in handlers), None)
            if handler is not None and not isinstance(handler, Tool):
                handler = partial(handler, action=member)
        settled = _serving_tool(name, item, handler)
        if member in _CONFIRMED and settled.needs_approval is False and not isinstance(handler, Tool):
            settled = replace(settled, needs_approval=True)
        yield settled


def _serving_tool(name: str, item: Mapping[str, Any], handler: Handler | None) -> Tool:
    if handler is not None:
        return tool_from_handler(handler, name)
    if name == MCP_APPROVAL:
        approving: Tool = tool(_approved, effect="read", local=True, timeout=_QUICK, needs_approval=True)
        return replace(approving, name=name, provider_tool=True)
    if item.get("type") == "builtin_function":
        echo: Tool = tool(_as_asked, parameters=_ANY, effect="read", local=True, timeout=_QUICK)
        return replace(echo, name=name, provider_tool=True)
    return Tool(
        name=name,
        description="",
        arguments=given_arguments(_ANY, place=f"The tool {name!r}", option="parameters"),
        runs_on="client",
        timeout=NO_TIMEOUT,
        patience=NO_TIMEOUT,
        provider_tool=True,
    )


def _find_handler(name: str, item: Mapping[str, Any], handlers: Mapping[str, Handler]) -> Handler | None:
    key_and_handler = next(
        ((key, handlers[key]) for key in handler_keys(item) if key in handlers and _is_for(key, name)), None
    )
    if key_and_handler is None:
        return None
    key, handler = key_and_handler
    if key == "computer_use" and in_a_browser(name) and not isinstance(handler, Tool):
        return partial(handler, action=name)
    return handler


def _is_for(key: str, name: str) -> bool:
    """A handler for one of Gemini's functions is not used for another."""
    return key == name or not in_a_browser(key)


def _in_container(item: Mapping[str, Any]) -> bool:
    """OpenAI's shell runs at the provider, unless it is asked to run here."""
    where = item.get("environment")
    return isinstance(where, Mapping) and where.get("type") in {"container_auto", "container_reference"}


async def _approved(server_label: str, name: str, arguments: Any = None) -> bool:  # noqa: ARG001 - shown to the person
    """Run once a person has approved a call of an MCP server that the provider asks for."""
    return True


async def _as_asked(**arguments: Any) -> dict[str, Any]:
    """What Moonshot wants back: it runs its own tools once it has it."""
    return arguments
