"""Front ends: pages on Vercel's AI SDK, and AG-UI's clients, with the runtimes that other libraries build on them"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from everturn import Agent, Client, Image, Model, Worker, tool, ui
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, say, slow
from peers.bench import HOST, Bench, NotInstalled, free_port

MINUTES = 15

LONG = 2512292042121000001

AI_SDKS = (
    ("ai@5.0.277", "@ai-sdk/react@2.0.280"),
    ("ai@6.0.326", "@ai-sdk/react@3.0.328"),
    ("ai@7.0.173", "@ai-sdk/react@4.0.177"),
)
AG_UI_CLIENTS = ("@ag-ui/client@0.0.59", "@ag-ui/client@1.0.0")
COPILOT = ("@copilotkit/runtime@1.75.0", "hono@4")
COPILOT_CORE = "@copilotkit/core@1.75.0"
ASSISTANT_UI = ("@assistant-ui/react@0.15.22", "@assistant-ui/react-ag-ui@0.0.57", "@assistant-ui/react-ai-sdk@1.4.12")
PAGES = Path(__file__).parent / "front_end_pages"

AI_SDK_PAGE = """
import { Chat } from "@ai-sdk/react";
import * as ai from "ai";
const [api, id, does] = process.argv.slice(2);
let posts = 0;
const headers = { "content-type": "application/json" };
const post = (address) => fetch(address, { method: "POST", headers, body: "{}" });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const rules = [ai.lastAssistantMessageIsCompleteWithApprovalResponses, ai.lastAssistantMessageIsCompleteWithToolCalls];
const chat = new Chat({
  id,
  transport: new ai.DefaultChatTransport({
    api,
    fetch: (address, options) => ((posts += options?.method === "POST" ? 1 : 0), fetch(address, options)),
  }),
  sendAutomaticallyWhen: ({ messages }) =>
    messages.some((message) => rules.filter(Boolean).some((rule) => rule({ messages: [message] }))),
  onToolCall: ({ toolCall }) => {
    if (toolCall.toolName === "where")
      void chat.addToolOutput({ tool: "where", toolCallId: toolCall.toolCallId, output: "At home" });
  },
});
const until = async (holds) => {
  for (let tries = 0; !holds(); tries++) {
    if (tries > 600) throw new Error(`it did not come: ${JSON.stringify(chat.messages)} ${chat.error}`);
    await sleep(50);
  }
};
const calls = () => chat.messages.flatMap((message) => message.parts).filter((part) => part.toolCallId);
const approve = (part) => chat.addToolApprovalResponse({ id: part.approval.id, approved: true });
const can = {
  talk: () => chat.sendMessage({ text: "Hello" }),
  picture: () => chat.sendMessage({ text: "picture" }),
  where: async () => {
    await chat.sendMessage({ text: "where" });
    await until(() => JSON.stringify(chat.messages).includes("You are"));
  },
  stop: async () => {
    void chat.sendMessage({ text: "think" });
    await until(() => calls().some((part) => part.state === "output-available"));
    await sleep(500);
    await post(`${api}${id}/stop`);
    await until(() => chat.status === "ready");
    await sleep(2000);
  },
  late: async () => {
    await chat.sendMessage({ text: "refund" });
    await chat.sendMessage({ text: "Hello?" });
    await approve(calls().find((part) => part.state === "approval-requested"));
    await until(() => JSON.stringify(chat.messages).includes("Good morning!"));
    await sleep(1000);
  },
};
await can[does]();
await until(() => chat.status !== "submitted" && chat.status !== "streaming");
const loaded = await (await fetch(`${api}${id}`)).json();
await ai.validateUIMessages({ messages: loaded });
const { messages, error } = chat;
console.log(JSON.stringify({ posts, messages, loaded, error: error?.message ?? "" }));
process.exit(0);
"""

AG_UI_PAGE = """
import { HttpAgent } from "@ag-ui/client";
const [url, threadId, does] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId });
process.on("unhandledRejection", () => {});
const errors = [], ends = [], orders = [];
agent.subscribe({
  onEvent: ({ event }) => void (event.type === "RUN_FINISHED" && ends.push(event)),
  onRunErrorEvent: ({ event }) => void errors.push(event.message),
});
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const order = () => orders.push(agent.messages.map(({ id, role }) => `${role} ${id}`));
const run = async (parameters = {}) => {
  await agent.runAgent(parameters).catch((failure) => errors.push(failure.message));
  order();
};
const say = (content, id = crypto.randomUUID()) => agent.addMessage({ id, role: "user", content });
const can = {
  talk: async () => (say("Hello"), await run(), await run()),
  picture: async () => (say("picture"), await run(), await run()),
  where: async () => {
    say("where");
    await run();
    const call = agent.messages.flatMap((message) => message.toolCalls ?? []).at(-1);
    agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: "At home" });
    await run();
  },
  approve: async () => {
    say("refund");
    await run();
    const resume = agent.pendingInterrupts.map(({ id, metadata }) => ({
      interruptId: id,
      status: "resolved",
      payload: { approved: true, editedArgs: { ...metadata.everturn.arguments, cents: 7 } },
    }));
    await run({ resume });
  },
  stop: async () => {
    say("think");
    const running = run();
    await sleep(2500);
    const headers = { "content-type": "application/json" };
    await fetch(`${url}${threadId}/stop`, { method: "POST", headers, body: "{}" });
    await running;
    say("Hello");
    await run();
  },
  refused: async () => {
    say([{ type: "hologram" }]);
    await run();
    errors.length = 0; // the client has its 400
    say("Hello");
    await run();
  },
};
await can[does]();
console.log(JSON.stringify({ messages: agent.messages, errors, ends, orders }));
process.exit(0);
"""

COPILOT_RUNTIME = """
import { HttpAgent } from "@ag-ui/client";
import { CopilotRuntime, createCopilotEndpoint } from "@copilotkit/runtime/v2";
const [url, threadId, text] = process.argv.slice(2);
const runtime = new CopilotRuntime({ agents: { default: new HttpAgent({ url }) } });
const app = createCopilotEndpoint({ runtime, basePath: "/api/copilotkit" });
const messages = [{ id: crypto.randomUUID(), role: "user", content: text }];
const input = { threadId, runId: crypto.randomUUID(), messages, state: {}, tools: [], context: [], forwardedProps: {} };
const request = new Request("http://localhost/api/copilotkit/agent/default/run", {
  method: "POST",
  headers: { "content-type": "application/json", accept: "text/event-stream" },
  body: JSON.stringify(input),
});
const answer = await app.fetch(request);
const lines = (await answer.text()).split("\\n").filter((line) => line.startsWith("data: "));
console.log(JSON.stringify({ status: answer.status, events: lines.map((line) => JSON.parse(line.slice(6))) }));
process.exit(0);
"""

COPILOT_PAGE = """
import { HttpAgent } from "@ag-ui/client";
import { CopilotKitCore, ɵInterruptState } from "@copilotkit/core";
const [url, threadId, decision] = process.argv.slice(2);
const agent = new HttpAgent({ agentId: "clerk", url, threadId });
const page = new CopilotKitCore({ agents__unsafe_dev_only: { clerk: agent } });
const ran = [];
page.addTool({ name: "erase", handler: async ({ path }) => (ran.push(path), `erased ${path}`) });
agent.addMessage({ id: crypto.randomUUID(), role: "user", content: "erase" });
await page.runAgent({ agent });
const before = [...ran];
const interrupts = new ɵInterruptState();
interrupts.setStandard(agent.pendingInterrupts);
const answer = interrupts.resolve({ approved: decision === "approve" });
// As CopilotKit's own pages do.
for (const { toolCallId, content } of answer.toolResults)
  agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId, content });
await page.runAgent({ agent, resume: answer.resume });
console.log(JSON.stringify({ before, ran, messages: agent.messages }));
process.exit(0);
"""


async def run(bench: Bench) -> None:
    async with _pages() as address:
        for packages in AI_SDKS:
            await ai_sdk(bench, address, packages)
        for package in AG_UI_CLIENTS:
            await ag_ui(bench, address, package)
        await copilotkit(bench, address)
        await copilotkit_page(bench, address)
        await assistant_ui(bench, address)


async def ai_sdk(bench: Bench, address: str, packages: tuple[str, ...]) -> None:
    """The Chat of @ai-sdk/react, with the rules of the how-to's page."""
    peer, version = "ai with @ai-sdk/react", packages[0].rpartition("@")[2]
    folder: Path | None = None
    with bench.check(peer, version, "installed"):
        folder = bench.node(*packages, "react@19.3.1", "zod@4.1.13")
    if folder is None:
        return
    version = bench.version(folder, "ai")

    async def page(does: str) -> Any:
        return await _in_node(folder, AI_SDK_PAGE, f"{address}/chat/", does)

    with bench.check(peer, version, "a text and thoughts, and the saved chat by the SDK's own check"):
        shown = await page("talk")
        assert shown["error"] == "", shown["error"]
        assert [part["text"] for part in shown["messages"][1]["parts"] if part["type"] == "text"] == ["Good morning!"]
        assert [message["id"] for message in shown["messages"]] == [message["id"] for message in shown["loaded"]], (
            "ids differ"
        )
        assert shown["messages"][1]["metadata"]["usage"]["totalTokens"] > 0
    with bench.check(peer, version, "a tool's picture"):
        shown = await page("picture")
        [part] = [part for part in shown["messages"][1]["parts"] if "toolCallId" in part]
        assert part["output"][1]["mediaType"] == "image/png", part
    with bench.check(peer, version, "a tool of the page"):
        shown = await page("where")
        assert (shown["error"], shown["posts"]) == ("", 2), (shown["error"], shown["posts"])
    with bench.check(peer, version, "Stop after a tool's result: the page comes to rest"):
        shown = await page("stop")
        assert shown["posts"] == 1, f"{shown['posts']} posts"
    if not version.startswith("5."):
        with bench.check(peer, version, "Approve on an earlier message, of a number beyond 2^53"):
            shown = await page("late")
            parts = [part for message in shown["messages"] for part in message["parts"] if "toolCallId" in part]
            assert [part["output"] for part in parts] == [f"{LONG} back"], parts
            assert shown["posts"] == 3, f"{shown['posts']} posts"


async def ag_ui(bench: Bench, address: str, package: str) -> None:
    """AG-UI's HttpAgent."""
    peer, version = "@ag-ui/client", package.rpartition("@")[2]
    folder: Path | None = None
    with bench.check(peer, version, "installed"):
        folder = bench.node(package)
    if folder is None:
        return
    version = bench.version(folder, "@ag-ui/client")
    for does, ran in {
        "talk": "a text and thoughts, and the same order after coming back",
        "picture": "a tool's picture",
        "where": "a tool of the front end",
        "approve": "an interrupt, approved with one field edited",
        "stop": "Stop, and then the next message",
        "refused": "a message after one that was refused",
    }.items():
        with bench.check(peer, version, ran):
            shown = await _in_node(folder, AG_UI_PAGE, f"{address}/ag-ui/", does)
            assert not shown["errors"], shown["errors"]
            assert shown["ends"], "no run has ended"
            if does in ("talk", "picture"):
                before, after = shown["orders"]
                assert before == after, f"{before}, then {after}"
            if does == "approve":
                [result] = [message["content"] for message in shown["messages"] if message["role"] == "tool"]
                assert result.endswith("7 back"), result


async def copilotkit(bench: Bench, address: str) -> None:
    """CopilotKit's runtime, which is a client of the agent for its own pages."""
    peer, version = "CopilotKit's runtime", COPILOT[0].rpartition("@")[2]
    folder: Path | None = None
    with bench.check(peer, version, "installed"):
        folder = bench.node(*COPILOT)
    if folder is None:
        return
    for text in ("Hello", "where", "picture"):
        with bench.check(peer, version, f"a run through it: {text}"):
            shown = await _in_node(folder, COPILOT_RUNTIME, f"{address}/ag-ui/", text)
            kinds = [event["type"] for event in shown["events"]]
            assert (shown["status"], kinds[-1:]) == (200, ["RUN_FINISHED"]), shown


async def copilotkit_page(bench: Bench, address: str) -> None:
    """CopilotKit's core, which is in its pages: it runs a tool as soon as the page has the call."""
    peer, version = "CopilotKit's core", COPILOT_CORE.rpartition("@")[2]
    folder: Path | None = None
    with bench.check(peer, version, "installed"):
        folder = bench.node(COPILOT_CORE)
    if folder is None:
        return
    for decision, expected in {"approve": ["a.txt"], "deny": []}.items():
        with bench.check(peer, version, f"a tool of the page that needs an approval: {decision}"):
            page = await _in_node(folder, COPILOT_PAGE, f"{address}/ag-ui/", decision)
            assert page["before"] == [], "it ran before it was approved"
            assert page["ran"] == expected, page
            results = [message["content"] for message in page["messages"] if message["role"] == "tool"]
            assert page["messages"][-1]["content"] == "Done.", page["messages"]
            assert len(results) == 1, results


async def assistant_ui(bench: Bench, address: str) -> None:
    """assistant-ui's React runtimes, in jsdom: one on AG-UI, one on the AI SDK."""
    peer, version = "assistant-ui", ASSISTANT_UI[0].rpartition("@")[2]
    folder: Path | None = None
    with bench.check(peer, version, "installed"):
        folder = bench.node(*ASSISTANT_UI, "react@19.3.1", "react-dom@19.3.1", "jsdom@26.1.0")
    if folder is None:
        return
    program = (PAGES / "assistant_ui.mjs").read_text()
    for door, package in {"ag-ui": "@assistant-ui/react-ag-ui", "chat": "@assistant-ui/react-ai-sdk"}.items():
        peer, version = package, bench.version(folder, package)
        for does, (ran, last_text, result) in ASSISTANT_UI_DOES.items():
            if does == "edit" and door == "chat":
                continue
            with bench.check(peer, version, ran):
                page = await _in_node(folder, program, address, door, does)
                assert not page["errors"], page["errors"]
                assert page["texts"][-1] == last_text, page["texts"]
                assert result in json.dumps(page["results"]), page["results"]


ASSISTANT_UI_DOES = {
    "talk": ("a message and its answer", "Good morning!", ""),
    "picture": ("a tool's picture", "Good morning!", "image/png"),
    "approve": ("an approval, of a number beyond 2^53", "Done.", f"{LONG} back"),
    "deny": ("a denial with its reason", "Done.", "Not today"),
    "edit": ("an interrupt, approved with one field edited", "Done.", "7 back"),
    "stop": ("Stop, and then the next message", "Good morning!", "A lamp."),
}
"""By what the page does: the words of the row, the last text that it shows, and what a call's result has in it."""


async def _in_node(folder: Path | None, program: str, *arguments: str) -> Any:
    """What the program prints as its last line, in JSON. It is given a new chat's id after the address."""
    assert folder is not None
    file = folder / f"{uuid4().hex}.mjs"
    file.write_text(program)
    node = os.environ.get("NODE", "node")
    process = await asyncio.create_subprocess_exec(
        node, str(file), arguments[0], uuid4().hex, *arguments[1:],
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        printed, problem = await asyncio.wait_for(process.communicate(), 90)
    except TimeoutError:
        process.kill()
        raise AssertionError("it took longer than 90 s") from None
    if process.returncode:
        raise AssertionError(problem.decode(errors="replace").strip()[-400:])
    return json.loads(printed.decode().splitlines()[-1])


# ---------------------------------------------------------------- everturn's side


@tool(effect="read")
def look_up() -> str:
    """Look it up."""
    return "A lamp."


@tool(effect="read")
def draw() -> list[Image | str]:
    """Draw."""
    return ["A dot.", Image(data="aGVsbG8=", media_type="image/png")]


@tool(needs_approval=True)
def refund(cents: int) -> str:
    """Pay back."""
    return f"{cents} back"


@tool(runs_on="client")
def where() -> str:
    """Where the person is."""
    raise NotImplementedError


@tool(runs_on="client", needs_approval=True, effect="once")
def erase(path: str) -> str:
    """Erase a file."""
    raise NotImplementedError


def _script(messages: list[Any]) -> Any:
    said = [message for message in messages if message["role"] == "user"]
    last = messages[-1]
    if last["role"] == "tool":
        text = str(said[0]["content"])
        return slow("A lamp.", seconds=60) if text == "think" else "You are there." if text == "where" else "Done."
    match last["content"]:
        case "think":
            return call("look_up")
        case "picture":
            return call("draw")
        case "where":
            return call("where")
        case "erase":
            return call("erase", {"path": "a.txt"})
        case "refund":
            return call("refund", {"cents": LONG})
        case _:
            return say("Good morning!", thinking="A greeting.")


@asynccontextmanager
async def _pages() -> AsyncIterator[str]:
    """An application with both front ends, an agent, and a server; its address."""
    server = DevServer(port=free_port(), ui_port=free_port())
    await server.start()
    try:
        async with ScriptedModel(_script) as model:
            scripted = Model("scripted:any", base_url=model.base_url)
            agent = Agent("clerk", model=scripted, tools=[look_up, draw, refund, where, erase])
            client = await Client.connect(server.address)
            options: dict[str, Any] = {"agent": agent, "authorize": ui.anybody}
            app = Starlette(
                routes=[Mount("/chat", ui.ai_sdk(client, **options)), Mount("/ag-ui", ui.ag_ui(client, **options))]
            )
            port = free_port()
            serving = uvicorn.Server(uvicorn.Config(app, host=HOST, port=port, log_level="critical"))
            async with Worker(client, agents=[agent]):
                running = asyncio.create_task(serving.serve())
                while not serving.started:
                    if running.done():
                        raise NotInstalled("the application did not start")
                    await asyncio.sleep(0.05)
                yield f"http://{HOST}:{port}"
                serving.force_exit = serving.should_exit = True
                await running
    finally:
        server.kill()
