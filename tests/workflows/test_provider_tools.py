"""Tools that a provider defines and its caller runs: their calls go to a handler, or wait for an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from everturn import Agent, Client, Image, Model, ModelSettings, ToolContext, tool
from everturn.errors import InvalidAgent, InvalidTool
from tests.support.agents import hosting
from tests.support.provider_server import ProviderServer, claude, in_order, message_item, response
from tests.support.waiting import waiting

Json = dict[str, Any]

WHOLE = ModelSettings(stream=False)
SHOT = Image(data="iVBORw0KGgo=", media_type="image/png")
SHOT_URL = "data:image/png;base64,iVBORw0KGgo="
DONE = message_item("Done.")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MOONSHOT_API_KEY"):
        monkeypatch.setenv(name, "sk-test")


def agent_of(server: ProviderServer, model: str, tools: Sequence[Any], **options: Any) -> Agent:
    return Agent("clerk", model=Model(model, base_url=server.base_url), tools=tools, settings=WHOLE, **options)


def shell_call(*commands: str) -> Json:
    action = {"commands": list(commands), "timeout_ms": 1000, "max_output_length": 4096}
    return {"type": "shell_call", "id": "sh_1", "call_id": "c1", "status": "completed", "action": action}


def patch_call(path: str) -> Json:
    operation = {"type": "update_file", "path": path, "diff": "@@\n-a\n+b"}
    return {"type": "apply_patch_call", "id": "ap_1", "call_id": "c1", "status": "completed", "operation": operation}


def computer_call(*checks: Json) -> Json:
    fields = {"id": "cu_1", "call_id": "c1", "status": "completed", "pending_safety_checks": list(checks)}
    return {"type": "computer_call", **fields, "actions": [{"type": "screenshot"}]}


def local_shell_call() -> Json:
    action = {"type": "exec", "command": ["ls"], "env": {}}
    return {"type": "local_shell_call", "id": "ls_1", "call_id": "c1", "status": "completed", "action": action}


def run_shell(commands: list[str], timeout_ms: int | None = None, max_output_length: int | None = None) -> Any:
    if commands == ["fail"]:
        raise RuntimeError("no shell")
    if commands == ["two", "lines"]:
        return [{"stdout": "one\n", "exit_code": 0}, {"stderr": "slow", "timed_out": True}]
    return {"stdout": f"{commands[0]} ran\n", "stderr": "", "exit_code": 3}


def apply_patch(type: str, path: str, diff: str = "") -> str:  # noqa: A002 - the provider's name
    if path == "gone.txt":
        raise FileNotFoundError(path)
    return f"{type} {path}"


def chunk(stdout: str = "", stderr: str = "", **outcome: Any) -> Json:
    return {"stdout": stdout, "stderr": stderr, "outcome": outcome}


@pytest.mark.parametrize(
    ("declared", "handler", "item", "output"),
    [
        (
            {"type": "shell"},
            run_shell,
            shell_call("ls"),
            {"type": "shell_call_output", "max_output_length": 4096}
            | {"output": [chunk("ls ran\n", type="exit", exit_code=3)]},
        ),
        (
            {"type": "shell", "environment": {"type": "local"}},
            run_shell,
            shell_call("two", "lines"),
            {"type": "shell_call_output", "max_output_length": 4096}
            | {"output": [chunk("one\n", type="exit", exit_code=0), chunk(stderr="slow", type="timeout")]},
        ),
        (
            {"type": "shell"},
            run_shell,
            shell_call("fail"),
            {"type": "shell_call_output", "max_output_length": 4096}
            | {"output": [chunk(stderr="RuntimeError: no shell", type="exit", exit_code=1)]},
        ),
        (
            {"type": "local_shell"},
            lambda command, **more: " ".join(command),
            local_shell_call(),
            {"type": "local_shell_call_output", "output": "ls"},
        ),
        (
            {"type": "apply_patch"},
            apply_patch,
            patch_call("a.txt"),
            {"type": "apply_patch_call_output", "status": "completed", "output": "update_file a.txt"},
        ),
        (
            {"type": "apply_patch"},
            apply_patch,
            patch_call("gone.txt"),
            {"type": "apply_patch_call_output", "status": "failed", "output": "FileNotFoundError: gone.txt"},
        ),
        (
            {"type": "computer"},
            lambda actions: SHOT,
            computer_call(),
            {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": SHOT_URL}},
        ),
        (
            {"type": "custom", "name": "sql", "format": {"type": "text"}},
            lambda input: f"{input}: 3 rows",  # noqa: A006 - the provider's name
            {"type": "custom_tool_call", "id": "ct_1", "call_id": "c1", "name": "sql", "input": "select 1"},
            {"type": "custom_tool_call_output", "output": "select 1: 3 rows"},
        ),
    ],
    ids=["shell", "shell of two", "shell fails", "local_shell", "patch", "patch fails", "computer", "custom"],
)
async def test_openais_own_tools_go_to_handlers_and_their_results_back_in_their_shape(
    client: Client, declared: Json, handler: Callable[..., Any], item: Json, output: Json
) -> None:
    name = declared.get("name") or declared["type"]
    with ProviderServer(in_order(response(item, id="resp_1"), response(DONE, id="resp_2"))) as server:
        agent = agent_of(server, "openai:gpt-5.5", [declared], handlers={name: handler})
        async with hosting(client, agent):
            outcome = await client.run(agent, "Go")
        asked, answered = server.bodies
    assert (outcome.status, outcome.text, outcome.turns) == ("completed", "Done.", 2)
    assert asked["tools"] == [declared]
    call, result = answered["input"][1:3]
    required = {"computer_call": ("id",), "local_shell_call": ("id",)}.get(item["type"], ())
    lacks = {"id", "status"} - set(required) if item["type"] == "custom_tool_call" else {"id"} - set(required)
    assert call == {key: value for key, value in item.items() if key not in lacks}
    assert result == {"call_id": "c1", **output}


async def test_without_a_handler_the_call_waits_for_an_answer(client: Client, cached_conversations: int) -> None:
    with ProviderServer(in_order(response(computer_call()), response(DONE, id="resp_2"))) as server:
        agent = agent_of(server, "openai:gpt-5.5", [{"type": "computer_use_preview", "environment": "browser"}])
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversation = await client.start(agent, "Go")
            await waiting(conversation)
            (call,) = (await conversation.status()).waiting
            assert (call.tool, call.reason, call.arguments) == (
                "computer",
                "runs_outside",
                {"actions": [{"type": "screenshot"}]},
            )
            await conversation.answer("c1", SHOT)
            assert (await conversation.outcome()).text == "Done."
        (result,) = [one for one in server.bodies[1]["input"] if one.get("type") == "computer_call_output"]
    assert result["output"] == {"type": "computer_screenshot", "image_url": SHOT_URL}


async def test_a_safety_check_is_for_a_person_and_is_acknowledged_once_they_have_approved(client: Client) -> None:
    check = {"id": "cs_1", "code": "malicious_instructions", "message": "The page asks for your password."}
    with ProviderServer(in_order(response(computer_call(check)), response(DONE, id="resp_2"))) as server:
        agent = agent_of(server, "openai:gpt-5.5", [{"type": "computer"}], handlers={"computer": lambda actions: SHOT})
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go")
            await waiting(conversation)
            (call,) = (await conversation.status()).waiting
            assert "The page asks for your password." in call.why
            await conversation.approve("c1")
            await conversation.outcome()
        (result,) = [one for one in server.bodies[1]["input"] if one.get("type") == "computer_call_output"]
    assert result["acknowledged_safety_checks"] == [check]


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_an_mcp_approval_request_is_a_call_that_a_person_approves(
    client: Client, cached_conversations: int, verdict: str
) -> None:
    server_tool = {"type": "mcp", "server_label": "shop", "server_url": "https://shop.example/mcp"}
    asks = {"server_label": "shop", "name": "refund", "arguments": '{"order": "81"}'}
    item = {"type": "mcp_approval_request", "id": "mcpr_1", **asks}
    with ProviderServer(in_order(response(item), response(DONE, id="resp_2"))) as server:
        agent = agent_of(server, "openai:gpt-5.5", [server_tool])
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversation = await client.start(agent, "Go")
            await waiting(conversation)
            (call,) = (await conversation.status()).waiting
            assert (call.call_id, call.tool, call.reason) == ("mcpr_1", "mcp_approval_request", "needs_approval")
            assert call.arguments == {"server_label": "shop", "name": "refund", "arguments": {"order": "81"}}
            await (conversation.approve("mcpr_1") if verdict == "approve" else conversation.deny("mcpr_1", "Too much."))
            assert (await conversation.outcome()).text == "Done."
        request, answer = server.bodies[1]["input"][1:]
    assert request == item
    assert answer.items() >= {"type": "mcp_approval_response", "approval_request_id": "mcpr_1"}.items()
    assert answer["approve"] is (verdict == "approve")
    assert ("Too much." in answer.get("reason", "")) is (verdict == "deny")


async def test_claudes_own_tools_go_to_handlers_and_screenshots_go_back_as_images(client: Client) -> None:
    declared = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 10, "display_height_px": 10},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    ]
    calls = [
        {"type": "tool_use", "id": "b1", "name": "bash", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "s1", "name": "computer", "input": {"action": "screenshot"}},
        {"type": "tool_use", "id": "e1", "name": "str_replace_based_edit_tool", "input": {"command": "view"}},
    ]

    async def run_bash(context: ToolContext, command: str = "", restart: bool = False) -> str:
        return f"{context.call_id}: {command}"

    @tool(effect="once", name="any_name")
    async def use_computer(action: str) -> Image:
        return SHOT

    handlers = {"bash": run_bash, "computer_20250124": use_computer, "text_editor": lambda **arguments: arguments}
    said = claude(*calls, stop="tool_use"), claude({"type": "text", "text": "Done."})
    with ProviderServer(in_order(*said)) as server:
        agent = agent_of(server, "anthropic:claude-sonnet-5", declared, handlers=handlers)
        async with hosting(client, agent):
            outcome = await client.run(agent, "Go")
        asked, answered = server.bodies
    assert outcome.text == "Done."
    assert [{name: tool[name] for name in tool if name != "cache_control"} for tool in asked["tools"]] == declared
    results = answered["messages"][2]["content"]
    assert [(result["tool_use_id"], result.get("is_error", False)) for result in results] == [
        ("b1", False),
        ("s1", False),
        ("e1", False),
    ]
    assert results[0]["content"] == "b1: ls"
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert results[1]["content"] == [{"type": "image", "source": source}]
    assert results[2]["content"] == '{"command":"view"}'


async def test_moonshots_web_search_gets_back_what_it_was_asked_with(client: Client) -> None:
    declared = {"type": "builtin_function", "function": {"name": "$web_search"}}
    function = {"name": "$web_search", "arguments": '{"search_result":{"search_id":"s1"}}'}
    called = {"id": "t1", "type": "builtin_function", "function": function}

    def choice(**message: Any) -> Json:
        return {"id": "m1", "choices": [{"index": 0, "message": {"role": "assistant", **message}}]}

    with ProviderServer(in_order(choice(tool_calls=[called]), choice(content="Found."))) as server:
        agent = agent_of(server, "moonshot:kimi-k2", [declared])
        async with hosting(client, agent):
            outcome = await client.run(agent, "Search")
        asked, answered = server.bodies
    assert outcome.text == "Found."
    assert asked["tools"] == [declared]
    assert answered["messages"][1]["tool_calls"] == [called]
    result = {"role": "tool", "tool_call_id": "t1", "name": "$web_search", "content": function["arguments"]}
    assert answered["messages"][2] == result


async def test_a_client_tool_of_a_dict_may_have_a_handler_too(client: Client) -> None:
    lookup: Json = {"name": "lookup", "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}}
    lookup["parameters"]["required"] = ["id"]
    item = {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": '{"id":"81"}'}
    with ProviderServer(in_order(response(item), response(DONE, id="resp_2"))) as server:
        agent = agent_of(server, "openai:gpt-5.5", [lookup], handlers={"lookup": lambda id: f"order {id}"})  # noqa: A006
        async with hosting(client, agent):
            await client.run(agent, "Go")
        asked, answered = server.bodies
    assert asked["tools"][0]["name"] == "lookup"
    assert answered["input"][2]["output"] == "order 81"


def test_a_handler_that_no_tool_calls_is_refused_with_the_nearest_name() -> None:
    bash = {"type": "bash_20250124", "name": "bash"}
    with pytest.raises(InvalidAgent, match=r"a handler for 'bsh'.*Did you mean 'bash'"):
        Agent("clerk", model="anthropic:claude-sonnet-5", tools=[bash], handlers={"bsh": print})
    with pytest.raises(InvalidAgent, match="None of its tools takes a handler"):
        Agent("clerk", model="anthropic:claude-sonnet-5", handlers={"bash": print})
    with pytest.raises(InvalidAgent, match="Write handlers="):
        Agent("clerk", model="anthropic:claude-sonnet-5", tools=[bash], handlers=[print])  # type: ignore[arg-type]
    with pytest.raises(InvalidTool, match="is called 'bash'"):
        Agent("clerk", model="anthropic:claude-sonnet-5", tools=[bash, tool(lambda: "", name="bash")])


def use(name: str, toolset: str, call_id: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments, "toolset_name": toolset}


async def test_the_tools_of_a_toolset_are_called_by_their_own_names(client: Client) -> None:
    called: list[Any] = []

    def computer(**arguments: Any) -> str:
        called.append(arguments)
        return "Done."

    def find(text: str) -> str:
        return f"found {text}"

    def navigate(url: str) -> str:
        called.append(url)
        return "Loaded."

    toolsets = [{"type": "computer_toolset_20260801"}, {"type": "browser_toolset_20260801"}]
    calls = [
        use("left_click", "computer", "c1", coordinate=[1, 2]),
        use("left_click", "browser", "b1", target={"ref": "7"}),
        use("navigate", "browser", "b2", url="https://a.org"),
        {"type": "tool_use", "id": "f1", "name": "find", "input": {"text": "lamp"}},  # the agent's own
    ]
    said = claude(*calls, stop="tool_use"), claude({"type": "text", "text": "Done."})
    handlers = {"computer": computer, "browser_toolset": computer, "navigate": navigate}
    with ProviderServer(in_order(*said)) as server:
        agent = agent_of(server, "anthropic:claude-opus-5-5", [*toolsets, tool(find)], handlers=handlers)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go")
            outcome = await conversation.outcome()
            message = (await conversation.transcript())[1]
        answered = server.bodies[1]["messages"]
    assert outcome.text == "Done."
    assert [call.name for call in message.tool_calls] == ["left_click", "browser_left_click", "navigate", "find"]
    assert sorted(map(str, called)) == [
        "https://a.org",
        "{'action': 'left_click', 'coordinate': [1, 2]}",
        "{'action': 'left_click', 'target': {'ref': '7'}}",
    ]
    sent = [{name: block[name] for name in block if name != "cache_control"} for block in answered[1]["content"]]
    assert sent == calls
    assert [block.get("is_error", False) for block in answered[2]["content"]] == [False] * 4


def test_a_toolset_offers_what_is_turned_on_and_asks_a_person_where_anthropic_does() -> None:
    def hand(action: str, **arguments: Any) -> str:
        return action

    configs = {"javascript_exec": {"enabled": True}, "zoom": {"enabled": False}, "wait": {}}
    toolset = {"type": "browser_toolset_20260801", "configs": configs}
    agent = Agent("hand", model="anthropic:claude-opus-5-5", tools=[toolset], handlers={"browser": hand})
    by_name = {tool.name: tool for tool in agent.tools}
    assert {"javascript_exec", "wait", "navigate"} <= by_name.keys()
    assert not by_name.keys() & {"zoom", "file_upload", "read_console"}
    assert [name for name, one in by_name.items() if one.needs_approval] == ["javascript_exec"]
    with pytest.raises(InvalidAgent, match="'browser'"):
        Agent("hand", model="anthropic:claude-opus-5-5", tools=[toolset], handlers={"browsr": hand})
