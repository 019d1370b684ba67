#!/usr/bin/env bash
# A LANGCHAIN AGENT RUNS A CALL THAT max_tokens CUT, WITH THE ARGUMENTS THAT CAME, if its reply is streamed; not streamed, the same
# reply is an invalid call, and nothing runs. Whether it is streamed depends on who listens: invoke() or stream_mode="messages".
#
# Software:  langchain 1.5.2, langchain-core 1.8.3, langchain-openai 1.7.4, langgraph 1.2.24, openai 3.57.0 (PyPI)
# Expected:  finish_reason "length" and arguments that are no JSON are an invalid call, streamed or not
# Seen:      delete_files(folder="/data/reports") ran: "older_than_days" was cut off, and has a default. Chunks are put together by a
#            parser that closes what is open (parse_partial_json), and the last of them is not parsed again. The reply has the
#            call among its tool_calls, invalid_tool_calls is empty; with the model's `streaming` left at its default, an
#            agent that is shown while it writes does this, and the same agent in a test, by invoke(), does not
# It matters to: agents whose tools have optional arguments: have a middleware refuse calls of a reply whose
#            response_metadata["finish_reason"] is "length" (Claude: stop_reason "max_tokens"), or make each argument required
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "langchain==1.5.2" "langchain-core==1.8.3" \
  "langchain-openai==1.7.4" "langgraph==1.2.24" "openai==3.57.0" || exit 2
timeout 120 "$folder/venv/bin/python" - <<'PY'
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

CUT = '{"folder": "/data/reports", "older_than'
ran = []


class Handler(BaseHTTPRequestHandler):
    """A model that calls delete_files and is cut; then, after a tool's result, it is done."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message, reason = {"role": "assistant", "content": "Done."}, "stop"
        if request["messages"][-1]["role"] == "user":
            function = {"name": "delete_files", "arguments": CUT}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "length"
        streamed = request.get("stream", False)
        place = "delta" if streamed else "message"
        choice = {"index": 0, place: message, "finish_reason": reason}
        kind = "chat.completion.chunk" if streamed else "chat.completion"
        body = json.dumps({"id": "c1", "object": kind, "created": 1, "model": "m", "choices": [choice]})
        data = (f"data: {body}\n\ndata: [DONE]\n\n" if streamed else body).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@tool
def delete_files(folder: str, older_than_days: int = 0) -> str:
    """Deletes the files of a folder that are so old; all of them if older_than_days is left out."""
    ran.append({"folder": folder, "older_than_days": older_than_days})
    return "deleted"


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
model = ChatOpenAI(model="m", api_key="none", base_url=f"http://127.0.0.1:{server.server_port}/v1", max_retries=0)
agent = create_agent(model, tools=[delete_files])
question = {"messages": [("user", "Delete the reports that are older than a year.")]}
seen = {}

calling = agent.invoke(question)["messages"][1]
seen["invoke"] = [*ran]
print("invoke: ran", ran, "| invalid calls:", len(calling.invalid_tool_calls))

ran.clear()
messages = [message for message, _ in agent.stream(question, stream_mode="messages")]
seen["messages"] = [*ran]
print('stream_mode="messages": ran', ran, "| messages seen:", [type(message).__name__ for message in messages])
assert seen == {"invoke": [], "messages": [{"folder": "/data/reports", "older_than_days": 0}]}, f"it has changed: {seen}"
PY
# Output of 2026-11-28:
# invoke: ran [] | invalid calls: 1
# stream_mode="messages": ran [{'folder': '/data/reports', 'older_than_days': 0}] | messages seen: ['AIMessageChunk', 'AIMessageChunk', 'ToolMessage', 'AIMessageChunk', 'AIMessageChunk']
