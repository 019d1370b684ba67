"""Agents: a name, a model, instructions, tools and limits. What a worker registers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, Union, get_args

from pydantic import JsonValue, TypeAdapter
from typing_extensions import TypeForm

from everturn import hooks as hook_points
from everturn.agent_settings import Approvals, Compaction
from everturn.errors import InvalidAgent, InvalidTool
from everturn.hooks import Hooks
from everturn.limits import Limits, Patience
from everturn.models import Model, ModelSettings
from everturn.names import versioned
from everturn.records import Decision, ToolCall
from everturn.reviews.reviewer import Reviewer
from everturn.tools.agent_option_checks import (
    ASK,
    check_batched,
    check_name,
    check_taken_tools,
    check_type,
    check_version,
    describe_type,
    handoffs_of,
    input_of,
    is_raw,
    models_of,
    output_of,
)
from everturn.tools.arguments import ModelArguments, SchemaArguments
from everturn.tools.client_tool import client_tool
from everturn.tools.context import ToolContext, TurnContext
from everturn.tools.given_schema import InputType
from everturn.tools.handoff import HandOff
from everturn.tools.mcp.config import McpServer
from everturn.tools.other_libraries import adopt_tool
from everturn.tools.output_type import OutputT_co, OutputType
from everturn.tools.provider_defined import Handler, check_handlers, handler_keys, own_searches, tools_of
from everturn.tools.server_tools import ServerTool
from everturn.tools.tool import Tool, tool
from everturn.tools.with_context import check_turn_function
from everturn.validation.names_of_other_libraries import no_attribute
from everturn.validation.spelling import known_options
from everturn.webhooks.webhook import Webhook

Loop = Literal["auto", "manual"]
"""Who settles the model's calls. `auto`: the conversation runs them. `manual`: your code answers each of them."""

ToolItem = Union[Callable[..., Any], Tool, ServerTool, McpServer, Mapping[str, Any], "Agent"]


Instructions = Callable[[TurnContext], str | Awaitable[str]] | Callable[[], str | Awaitable[str]]
"""A function that returns the system prompt. A worker runs it before each turn, in the turn's activity."""

PrepareTools = Callable[[TurnContext, list[Tool]], Iterable[ToolItem] | Awaitable[Iterable[ToolItem]]]
"""A function that returns a turn's tools. It gets the agent's tools, and runs on a worker, in the turn's activity."""


Verdict = bool | str | Awaitable[bool | str]
Approvers = Callable[[ToolCall, Decision], Verdict] | Callable[[ToolCall, Decision, ToolContext], Verdict]
"""Says whether the person who decided (`decision.by`) may do so: True if they may, else False or the reason in words.
A worker runs it. If it takes a third argument, that is the call's context."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Agent(Generic[OutputT_co]):
    """A name, a model, instructions and tools: what workers host, and conversations run. Frozen, and checked when made.

    `tools` takes functions, `@tool` objects, tools that the provider runs (`WebSearch()`), dicts with a name (`{"name",
    "description", "parameters"}`, run by the client), other agents (each call is a conversation of its own, which
    begins with the call's `message`, or its `input`), MCP servers, and raw provider dicts, which are passed through.
    Some of these you have to run yourself: a shell, a computer, an editor, a custom tool. Their calls go to the
    function with their name in `handlers`, as in `handlers={"bash": run_bash}`, or wait for an answer. The same goes
    for dicts with a name. `handoff_to` takes other agents, their names, and HandOffs: the model may hand the
    conversation on to them, and they answer from then on. Raises InvalidAgent, InvalidTool or InvalidModel.
    """

    name: str
    """1 to 64 letters, digits, dots, - and _. Clients ask for the agent by this name."""
    version: str | None
    """Which version of it this is; None if it has none. A conversation stays with the version that its first turn had:
    see docs/howto/pin-versions.md."""
    model: Model
    instructions: str | Instructions
    """The system prompt; or a function, sync or async, that returns it before each turn. It may take the
    TurnContext."""
    tools: tuple[Tool, ...]
    """The tools that a worker or the client runs."""
    server_tools: tuple[ServerTool, ...]
    """The tools that the provider runs."""
    raw_tools: tuple[Mapping[str, Any], ...]
    """Raw provider dicts."""
    prepare_tools: PrepareTools | None
    """Returns a turn's tools: a function, sync or async, of the TurnContext and the list of `tools`."""
    agents: tuple[Agent, ...]
    """The agents in `tools` and in `handoff_to`. They need no worker of their own."""
    handoffs: tuple[HandOff, ...]
    """The agents that it may hand the conversation over to. The model sees each of them as a tool."""
    mcp_servers: tuple[McpServer, ...]
    """The MCP servers in `tools`. The worker knows which tools they offer."""
    description: str
    """Says what the agent is good for, to agents that have it as a tool."""
    settings: ModelSettings
    limits: Limits
    patience: Patience
    fallback_models: tuple[Model, ...]
    """Asked in this order if `model` fails in a way that retries don't cure, or when patience is over."""
    compaction: Compaction | None
    """How a transcript that nears the model's window is shortened for the model; None: it is not."""
    approvals: Approvals
    """When waiting calls expire."""
    approvers: Approvers | None
    """Says who may decide: a function, sync or async, of the call and the decision."""
    reviewer: Reviewer | None
    """A model that decides, within rules, on calls that need an approval."""
    webhook: Webhook | None
    """Is sent what its conversations wait for, and how they end."""
    hooks: tuple[Hooks, ...]
    """Your code at each turn and each call, which may change or stop it: see everturn.hooks."""
    input: InputType | None
    """The arguments of a call of this agent by another one, whose tool it is: a pydantic model, or a JSON schema. Its
    conversation then begins with them, as JSON. None: it is asked in words, with a `message`."""
    input_arguments: ModelArguments | SchemaArguments | None
    output: Any
    """The type of the last reply: a pydantic model, or any type that JSON can carry. If a reply does not fit, the model
    is told why, and asked again, twice. Its validators run on the worker; `info.context` is the TurnContext."""
    output_adapter: TypeAdapter[Any] | None
    output_schema: dict[str, Any] | None
    """The JSON schema of `output`, of type object, whatever the type is."""
    local: Literal["auto", False] | None
    """With "auto", its `read` tools run within the conversation's workflow task when their last runs were quick. None:
    as the worker's `local_tools` says. A tool's own `local` overrides it."""
    loop: Loop
    """With "manual", no call runs by itself: each waits for an answer, even calls of tools with a function."""
    activity_prefix: str = ""
    """What the worker puts before a tool's name to name its activity: see EverturnPlugin."""

    if not TYPE_CHECKING:  # a type checker is to go on refusing what is not there

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("Agent", name)

    @known_options("Agent", InvalidAgent)
    def __init__(
        self,
        name: str,
        *,
        model: str | Model,
        version: str | None = None,
        instructions: str | Instructions = "",
        description: str = "",
        tools: Sequence[ToolItem] = (),
        prepare_tools: PrepareTools | None = None,
        settings: ModelSettings = ModelSettings(),  # noqa: B008 - frozen
        limits: Limits = Limits(),  # noqa: B008 - frozen
        patience: Patience = Patience(),  # noqa: B008 - frozen
        fallback_models: Sequence[str | Model] = (),
        compaction: Compaction | None = None,
        approvals: Approvals = Approvals(),  # noqa: B008 - frozen
        approvers: Approvers | None = None,
        reviewer: Reviewer | None = None,
        webhook: Webhook | None = None,
        hooks: Sequence[Hooks] = (),
        input: InputType | None = None,  # noqa: A002 - beside `output`
        output: TypeForm[OutputT_co] = None,  # type: ignore[assignment]  # noqa: RUF013 - any type, None among them
        local: Literal["auto", False] | None = None,
        loop: Loop = "auto",
        handlers: Mapping[str, Handler] = {},
        handoff_to: Sequence[Agent | str | HandOff] = (),
    ) -> None:
        check_name(name)
        check_version(name, version)
        if not callable(instructions):
            check_type(name, "instructions", instructions, str)
        check_turn_function(name, "instructions", instructions)
        check_turn_function(name, "prepare_tools", prepare_tools, [])
        check_type(name, "description", description, str)
        check_type(name, "settings", settings, ModelSettings)
        check_type(name, "limits", limits, Limits)
        check_type(name, "patience", patience, Patience)
        check_type(name, "approvals", approvals, Approvals)
        if reviewer is not None:
            check_type(name, "reviewer", reviewer, Reviewer)
        if webhook is not None:
            check_type(name, "webhook", webhook, Webhook)
        if compaction is not None:
            check_type(name, "compaction", compaction, Compaction)
        if loop not in get_args(Loop):
            raise InvalidAgent(f"Agent {name!r} has loop={loop!r}.", cure="Write loop='auto' or loop='manual'.")
        if local not in ("auto", False, None):
            raise InvalidAgent(
                f"Agent {name!r} has local={local!r}.", cure="Write local='auto' or local=False, or leave it out."
            )
        handoffs = handoffs_of(name, handoff_to, loop=loop)
        own_tools, served, raw = _sort_tools(name, tools, handlers, handoffs)
        agents = tuple(item for item in (*tools, *(handoff.agent for handoff in handoffs)) if isinstance(item, Agent))
        with_sub_agents(agents, parent=versioned(name, version))
        wanted = output_of(name, output)
        line = models_of(name, model, fallback_models)
        check_batched(name, line, settings)
        mcp_servers = tuple(item for item in tools if isinstance(item, McpServer))
        check_taken_tools(line, own_tools, served, mcp_servers)
        own_tools = (*own_tools, *own_searches(line, served, own_tools))
        if reviewer is not None and not (mcp_servers or prepare_tools):
            reviewer.check_tools(name, frozenset(item.name for item in own_tools))
        vars(self).update(
            name=name,
            version=version,
            model=line[0],
            instructions=instructions,
            tools=own_tools,
            prepare_tools=prepare_tools,
            server_tools=served,
            raw_tools=raw,
            agents=agents,
            handoffs=handoffs,
            mcp_servers=mcp_servers,
            description=description,
            settings=settings,
            compaction=compaction,
            approvals=approvals,
            approvers=approvers,
            reviewer=reviewer,
            webhook=webhook,
            hooks=hook_points.check_hooks(f"Agent {name!r}", hooks),
            limits=limits,
            patience=patience,
            fallback_models=tuple(line[1:]),
            loop=loop,
            local=local,
            input=input,
            input_arguments=input_of(name, input),
            output=output,
            output_adapter=wanted and wanted.adapter,
            output_schema=wanted and wanted.schema,
            _output=wanted,
            _by_name={item.name: item for item in own_tools},
        )

    def __repr__(self) -> str:
        tools = ", ".join(item.name for item in self.tools) or "none"
        return f"<Agent {self.name!r}, {self.model.name}, tools: {tools}>"

    def tool(self, name: str) -> Tool | None:
        """The tool with this name; None if the agent has none (models make names up)."""
        by_name: dict[str, Tool] = vars(self)["_by_name"]
        return by_name.get(name)

    @property
    def callable_tools(self) -> tuple[str, ...]:
        """The names of the tools that a model may call now."""
        return tuple(vars(self)["_by_name"])

    def handoff(self, tool: str) -> HandOff | None:
        """The handoff that a call of this tool makes; None if it makes none."""
        return next((handoff for handoff in self.handoffs if handoff.name == tool), None)

    def with_tools(self, *more: Tool) -> Self:
        """The same agent with more tools. Raises InvalidAgent if a name is taken."""
        for item in more:
            if self.tool(item.name):
                raise InvalidAgent(
                    f"Agent {self.name!r} has a tool {item.name!r}, and so has its worker.",
                    cure="Give the agent's tool another name: tool(name='...').",
                )
        agent = copy(self)
        tools = (*self.tools, *more)
        vars(agent).update(tools=tools, _by_name={item.name: item for item in tools})
        return agent

    @property
    def full_name(self) -> str:
        """Name and version, as in `clerk@7`. Conversations that stay with a version ask for the agent by this name."""
        return versioned(self.name, self.version)

    def named(self, name: str) -> Self:
        """The same agent under another name, such as one with its version."""
        agent = copy(self)
        vars(agent).update(name=name, version=None)
        return agent

    def for_turn(self, *, instructions: str | None = None, tools: Sequence[ToolItem] | None = None) -> Self:
        """The same agent with other instructions, or with these tools in place of its own, in an order that does not
        depend on theirs: providers cache what stands before the messages, and Claude binds its thoughts to it. Tools
        that the provider runs are added to those that it has. Raises InvalidTool."""
        agent = copy(self)
        if instructions is not None:
            vars(agent).update(instructions=instructions)
        if tools is not None:
            given, served, raw = _sort_tools(self.name, tools, {})
            given = (*given, *own_searches((self.model, *self.fallback_models), (*self.server_tools, *served), given))
            places = {item.name: place for place, item in enumerate(self.tools)}
            own = tuple(sorted(given, key=lambda item: (places.get(item.name, len(places)), item.name)))
            served = tuple(sorted(served, key=lambda item: type(item).__name__))
            others = {type(server_tool): server_tool for server_tool in (*self.server_tools, *served)}
            raw = tuple(sorted(raw, key=lambda item: json.dumps(item, sort_keys=True, default=str)))
            more = {"server_tools": tuple(others.values()), "raw_tools": (*self.raw_tools, *raw)}
            vars(agent).update(tools=own, _by_name={item.name: item for item in own}, **more)
        return agent

    def with_activity_prefix(self, prefix: str) -> Self:
        """The same agent. The names of its tools' activities begin with this prefix."""
        agent = copy(self)
        vars(agent).update(activity_prefix=prefix)
        return agent

    def with_hooks(self, hooks: Sequence[Hooks]) -> Self:
        """The same agent with more hooks, before its own."""
        agent = copy(self)
        vars(agent).update(hooks=(*hooks, *self.hooks))
        return agent

    def read_output(self, text: str, context: TurnContext[Any] | None = None) -> JsonValue:
        """A final reply's text as the `output` type, in JSON; None for an agent without one. Raises InvalidOutput."""
        wanted: OutputType | None = vars(self)["_output"]
        if wanted is None:
            return None
        return wanted.parse_reply(text, context)

    def typed_output(self, output: JsonValue, text: str) -> OutputT_co:
        """A final reply as a value of the `output` type, for whoever has waited for it. `output`: what `read_output`
        has made of its text; for an agent without a type, this is returned. Raises InvalidOutput."""
        wanted: OutputType | None = vars(self)["_output"]
        value: OutputT_co = wanted.to_typed(output, text) if wanted else output  # type: ignore[assignment]
        return value


def with_sub_agents(agents: Iterable[Agent], *, parent: str = "") -> dict[str, Agent]:
    """The agents and all that are their tools, by full name; the first version of each also by its plain name, if no
    other agent has that. Raises InvalidAgent if two share a name, since conversations find their agent by its name.
    `parent`: the full name of the agent that has them as tools."""
    by_name: dict[str, Agent] = {}
    first_versions: dict[str, Agent] = {}
    todo = list(agents)
    while todo:
        agent = todo.pop(0)
        if agent.full_name == parent:
            raise InvalidAgent(
                f"Agent {parent!r} has an agent of its own name among its tools or handoffs.",
                cure="Rename one of them.",
            )
        if by_name.setdefault(agent.full_name, agent) is not agent:
            raise InvalidAgent(
                f"Two agents are called {agent.full_name!r}.", cure="Give one of them another name, or another version."
            )
        first_versions.setdefault(agent.name, agent)
        todo += agent.agents
    return first_versions | by_name


def _sort_tools(
    agent: str, items: Any, handlers: Any, handoffs: Iterable[HandOff] = ()
) -> tuple[tuple[Tool, ...], tuple[ServerTool, ...], tuple[Mapping[str, Any], ...]]:
    """What runs by name, what the provider runs, and the raw provider dicts."""
    if isinstance(items, str | Mapping | Tool | ServerTool | McpServer | Agent) or not isinstance(items, Iterable):
        raise InvalidTool(f"Agent {agent!r} has tools={items!r}, which is not a list.", cure="Write tools=[...].")
    items = list(items)
    tools_by_name: dict[str, Tool] = {}
    served: dict[type[ServerTool], ServerTool] = {}
    raw = [item for item in items if isinstance(item, Mapping) and is_raw(item)]
    own = [str(item.get("name")) for item in items if isinstance(item, Mapping) and not is_raw(item)]
    handlers = check_handlers(agent, handlers, [*own, *(key for item in raw for key in handler_keys(item))])
    for index, item in enumerate(items):
        place = f"tools[{index}] of Agent {agent!r}"
        if isinstance(item, McpServer) or item in raw:
            pass  # the worker lists what it has; the provider knows what it is
        elif isinstance(item, ServerTool):
            if type(item) in served:
                raise InvalidTool(
                    f"{place} is a second {type(item).__name__}.", cure="Put all settings into the first."
                )
            served[type(item)] = item
        elif isinstance(item, Mapping):
            _add_tool(tools_by_name, client_tool(item, handlers, place=place), place=place)
        else:
            _add_tool(tools_by_name, _function_tool(item, place=place), place=place)
    for own_tool in tools_of(raw, handlers, other_names=tuple(tools_by_name)):
        _add_tool(tools_by_name, own_tool, place=f"One of the provider's own tools of Agent {agent!r}")
    for handoff in handoffs:
        _add_tool(tools_by_name, handoff.as_tool(), place=f"The handoff of Agent {agent!r} to {handoff.to!r}")
    return tuple(tools_by_name.values()), tuple(served.values()), tuple(raw)


def _add_tool(tools_by_name: dict[str, Tool], named_tool: Tool, *, place: str) -> None:
    if named_tool.name in tools_by_name:
        raise InvalidTool(
            f"{place} is called {named_tool.name!r}, like an earlier one.",
            cure="Give one of them another name: tool(name='...').",
        )
    tools_by_name[named_tool.name] = named_tool


def _function_tool(item: Any, *, place: str) -> Tool:
    if isinstance(item, Tool):
        return item
    if isinstance(item, Agent):
        return _agent_tool(item, place=place)
    if isinstance(item, type):
        settings = "" if issubclass(item, ServerTool) else "..."  # all of a server tool's settings have defaults
        raise InvalidTool(f"{place}: {item.__name__} is a class.", cure=f"Write {item.__name__}({settings}).")
    if not callable(item) and not adopt_tool(item):
        raise InvalidTool(
            f"{place} is {item!r}, {describe_type(item)}.",
            cure="Write a function, a @tool, WebSearch(), or a dict with name, description and parameters.",
        )
    try:
        return tool(item)
    except InvalidTool as error:
        raise InvalidTool(f"{place}: {error.message}", cure=error.cure) from error


def _agent_tool(item: Agent, *, place: str) -> Tool:
    description = item.description or f"Ask the agent {item.name} and get its answer."
    try:
        arguments = item.input_arguments or ASK
        return Tool(name=item.name, description=description, arguments=arguments, agent=item.full_name)
    except InvalidTool as error:
        raise InvalidTool(f"{place}: {error.message}", cure="Give the agent a name that a tool may have.") from error


def name_of(agent: Agent | str) -> str:
    """Raises InvalidAgent for what is neither an agent nor a name."""
    if isinstance(agent, Agent):
        return agent.full_name
    if isinstance(agent, str):
        return agent
    raise InvalidAgent(f"{agent!r} is not an agent.", cure="Give an Agent, or the name of one that a worker hosts.")
