"""The agents of the simulation and their tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from everturn import Agent, HandOff, Limits, ModelSettings, Patience, Shown, ToolContext, ToolFailed, tool
from everturn.agent import with_sub_agents
from everturn.agent_settings import Approvals, Compaction
from everturn.errors import OutcomeUnknown, Retry
from everturn.records import Decision, ToolCall
from everturn.tools.context import TurnContext
from tests.simulation.agents import asking_and_hooked, local_tools, run_time
from tests.simulation.agents import mcp as mcp_agents
from tests.simulation.agents.ledger import chance_at_hand, leave, take, tried
from tests.simulation.agents.reviewed import REVIEWED, REVIEWER


@tool(effect="read")
async def look(number: int, context: ToolContext) -> str:
    """Reads."""
    await take(context)
    return leave("look", context, number=number)


@tool
def note(text: str, context: ToolContext) -> str:
    """Writes; twice is the same as once."""
    return leave("note", context, text=text)


@tool(effect="read", local=True, timeout=timedelta(seconds=4))
async def peek(number: int, context: ToolContext) -> str:
    """Reads something near."""
    await asyncio.sleep(chance_at_hand().choice((0.0, 0.01, 0.3)))
    return leave("peek", context, number=number)


@tool(needs_approval=True, effect="once")
async def refund(order_id: str, cents: int, context: ToolContext) -> str:
    """Must not happen twice, and not without a person's word."""
    said = leave("refund", context, order_id=order_id, cents=cents)
    await take(context)
    return said


@tool(effect="once")
async def pay(cents: int, context: ToolContext) -> str:
    """Must not happen twice."""
    await take(context)
    said = leave("pay", context, cents=cents)
    await take(context)
    return said


async def _leave_a_doubt(name: str, context: ToolContext, cents: int) -> str:
    """Takes effect, and now and then nobody knows."""
    await take(context)
    said = leave(name, context, cents=cents)
    if chance_at_hand().random() < 0.5:
        raise OutcomeUnknown("the line broke")
    return said


@tool(effect="once")
async def wire(cents: int, context: ToolContext) -> str:
    """Must not happen twice, and leaves doubts."""
    return await _leave_a_doubt("wire", context, cents)


@tool(needs_approval=True, effect="once")
async def ship(cents: int, context: ToolContext) -> str:
    """The same, with a person's word."""
    return await _leave_a_doubt("ship", context, cents)


@tool(effect="read", local=True, needs_approval=True, timeout=timedelta(seconds=4))
async def peep(number: int, context: ToolContext) -> str:
    """Reads something near, if a person says so."""
    return leave("peep", context, number=number)


@tool(needs_approval=lambda arguments: arguments["cents"] > 10)
async def gift(cents: int, context: ToolContext) -> str:
    """Needs a person's word if it is large."""
    await take(context)
    return leave("gift", context, cents=cents)


@tool(patience=timedelta(minutes=30))
async def flaky(times: int, context: ToolContext) -> str:
    """Comes to something after some tries."""
    if context.attempt <= times:
        raise Retry("not yet", after=chance_at_hand().choice((None, 0.0, 1.0, 40.0)))
    return leave("flaky", context, times=times)


@tool(patience=timedelta(days=20))
async def tardy(times: int, context: ToolContext) -> str:
    """Says when it wants to be tried again, at once or in days."""
    after = chance_at_hand().choice((0.5, 0.5, 40.0, 100_000.0)) if context.attempt <= times else None
    tried(context, after)
    if after is not None:
        raise Retry("not yet", after=after)
    return leave("tardy", context, times=times)


@tool(timeout=timedelta(seconds=20), patience=timedelta(minutes=2))
async def slow(seconds: float, context: ToolContext) -> str:
    """May take longer than it is given."""
    said = leave("slow", context, seconds=seconds)
    await asyncio.sleep(seconds)
    return said


@tool(effect="read")
def fails(how: str, context: ToolContext) -> str:
    """Never works."""
    leave("fails", context, how=how)
    if how == "kindly":
        raise ToolFailed("it can't be done")
    raise RuntimeError("it broke")


@tool(effect="read")
def long(size: int, context: ToolContext) -> str:
    """Has much to say."""
    return f"{leave('long', context, size=size)} {'é…x' * (size // 3)}"


OUTSIDE = {
    "name": "outside",
    "description": "Runs somewhere else.",
    "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
}

TOOLS = (look, peek, note, refund, pay, gift, flaky, slow, fails, long, OUTSIDE, wire, ship, peep)
CHOOSING = "choosing"
"""The agent whose people name tools with their messages."""
ONCE = {"refund", "pay", "wire", "ship", "borrow", "inquire", "extra", *mcp_agents.MCP_ONCE}
LOCAL = {"peek", "peep", "linger", "waver", "glance"}
APPROVED = {"refund", "ship", "peep", *mcp_agents.MCP_APPROVED}
"""These always need a person's word."""


def may_decide(_: ToolCall, decision: Decision) -> bool | str:
    """Some people may not, and the policy breaks now and then."""
    if decision.by == "stranger":
        return "strangers may not"
    if decision.note == "break":
        raise RuntimeError("the policy broke")
    return True


def tools_for(text: str) -> tuple[str, ...] | None:
    """The tools that come with a message; None: it names none."""
    number = text.removeprefix("message ").partition(" ")[0]
    return (None, ("look",), ("look", "note", "peek"))[int(number) % 3 if number.isdigit() else 0]


def _prepared(_: TurnContext, tools: list[Any]) -> list[Any]:
    """Some tools are there for the turn alone, and now and then nobody can say which."""
    if chance_at_hand().random() < 0.25:
        raise RuntimeError("nobody knows the tools now")
    return [*tools, pay, wire, ship]


_OPTIONS: dict[str, dict[str, Any]] = {}
"""What each agent was made with, to make its next version of."""


def _agent(name: str, **options: Any) -> Agent:
    patience = Patience(model=timedelta(minutes=2), turn_timeout=timedelta(minutes=3))
    _OPTIONS[name] = {"model": "scripted:first", "tools": TOOLS, "patience": patience, **options}
    return Agent(name, **_OPTIONS[name])


def _handing(name: str, *to: str | HandOff, **options: Any) -> Agent:
    return _agent(name, instructions=instructions_of(name), handoff_to=to, **options)


def instructions_of(name: str) -> str:
    """Of an agent that conversations are handed to: they say who it is."""
    return f"You are {name}."


HELPER = _agent("helper", tools=(look, refund), description="Helps.", input=run_time.Matter)

AGENTS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        _agent("clerk"),
        _agent("hurried", approvals=Approvals(expire_after=timedelta(seconds=30))),
        _agent(
            "trusting",
            approvals=Approvals(
                expire_after=timedelta(seconds=50), on_expiry="approve", remind_before=timedelta(seconds=10)
            ),
        ),
        _agent("guarded", approvers=may_decide),
        _agent("short", limits=Limits(max_turns=3)),
        _agent("abrupt", limits=Limits(max_turns=4, conclude=False)),
        _agent("thrifty", limits=Limits(max_tool_calls=4)),
        _agent("counted", limits=Limits(max_total_tokens=400)),
        _agent("timed", limits=Limits(max_duration=timedelta(minutes=3))),
        _agent("single", limits=Limits(max_parallel_calls=1)),
        _agent("falling", fallback_models=["scripted:second", "scripted:third"]),
        _agent("compact", compaction=Compaction(window_tokens=300, at=0.5, keep_messages=4)),
        _agent("typed", output=int),
        _agent("manual", loop="manual"),
        _agent("boss", tools=(*TOOLS, HELPER)),
        _agent("watched", approvers=may_decide, approvals=Approvals(expire_after=timedelta(seconds=30))),
        _agent("hooked", hooks=asking_and_hooked.HOOKS),
        _agent("prepared", tools=(look,), prepare_tools=_prepared),
        _agent("asking", tools=(*TOOLS, asking_and_hooked.borrow, asking_and_hooked.inquire)),
        _handing(
            "triage",
            HandOff("expert", input=run_time.Matter),
            HandOff("guard", needs_approval=True),
            tools=(look, note, refund),
        ),
        _handing("expert", HandOff("triage", filter=Shown(last=1)), HandOff("guard", filter=Shown(tools=False))),
        _handing("guard", HandOff("triage", needs_approval=True), approvers=may_decide),
        _agent("told", **run_time.NEWER_AGENTS["told"]),
        _agent("forced", **run_time.NEWER_AGENTS["forced"]),
        _agent("waiting", tools=(*TOOLS, tardy)),
        _agent("near", tools=(*TOOLS, *local_tools.NEAR_TOOLS)),
        _agent(mcp_agents.PLUGGED, tools=(look, *mcp_agents.SERVERS)),
        _agent(CHOOSING),
        _agent(REVIEWED, reviewer=REVIEWER),
        _agent("batched", model="openai:gpt-5.5", settings=ModelSettings(batch=True)),
        _agent("shell", tools=(*TOOLS, *run_time.PROVIDERS_TOOLS), **run_time.NEWER_AGENTS["shell"]),
    )
}

HANDING = ("triage", "expert", "guard")
"""These hand their conversations on to each other."""

WEIGHTS = {"clerk": 8, "guarded": 2, "boss": 1} | dict.fromkeys(
    (
        "watched",
        "hooked",
        "asking",
        "prepared",
        "near",
        "waiting",
        "batched",
        CHOOSING,
        REVIEWED,
        mcp_agents.PLUGGED,
        *HANDING,
        *run_time.NEWER_AGENTS,
    ),
    0,
)


@tool(name="look", effect="read")
async def look_otherwise(count: int, context: ToolContext) -> str:
    """Takes something else than it did before the deploy."""
    return leave("look", context, count=count)


@tool(timeout=timedelta(seconds=20), patience=timedelta(minutes=2))
async def slowly(seconds: float, context: ToolContext) -> str:
    """Was called `slow` before the deploy."""
    said = leave("slowly", context, seconds=seconds)
    await asyncio.sleep(seconds)
    return said


RENAMED = {"slow": "slowly"}
LIMITS_LATER: dict[str, Limits] = {
    "short": Limits(max_turns=5),
    "abrupt": Limits(max_turns=2, conclude=False),
    "thrifty": Limits(max_tool_calls=2),
    "counted": Limits(max_total_tokens=200),
    "single": Limits(max_parallel_calls=2),
}
"""Those of the next version, which are others than before."""


def _changed(tools: Sequence[Any]) -> list[Any]:
    """A tool is gone, another one has a new signature, and one has a new name."""
    others = {id(look): look_otherwise, id(slow): slowly}
    return [others.get(id(tool), tool) for tool in tools if tool is not note and tool is not HELPER]


HELPER_LATER = Agent("helper", **{**_OPTIONS["helper"], "tools": _changed(_OPTIONS["helper"]["tools"])})


def _next_version(name: str) -> Agent:
    asked = [HELPER_LATER] if name == "boss" else []
    limits = {"limits": LIMITS_LATER[name]} if name in LIMITS_LATER else {}
    return Agent(name, **{**_OPTIONS[name], "tools": [*_changed(_OPTIONS[name]["tools"]), *asked], **limits})


VERSIONS: dict[str, list[Agent]] = {
    "first": [*with_sub_agents(AGENTS.values()).values()],
    "later": [*with_sub_agents(map(_next_version, AGENTS)).values()],
    "other": [Agent("stranger", model="scripted:first")],
}
"""What a worker may host: the agents, those of the next deploy, or none of them."""


def hosted(version: str, agent: str) -> list[Agent]:
    """Of those, who takes part in conversations with an agent."""
    on_stage = {agent, HELPER.name, *HANDING}
    return [one for one in VERSIONS[version] if version == "other" or one.name in on_stage]
