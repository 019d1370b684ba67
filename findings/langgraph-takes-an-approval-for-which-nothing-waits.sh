#!/usr/bin/env bash
# LANGGRAPH TAKES AN APPROVAL FOR WHICH NOTHING WAITS: one that comes late does nothing and looks like success; one for a thread that
# does not exist has the model asked about nothing at all.
#
# Software:  langgraph 1.2.24, langchain 1.5.2, langchain-core 1.8.3 (PyPI), with HumanInTheLoopMiddleware
# Expected:  Command(resume=...) answers an interrupt: where there is none (any more), an error, as for two interrupts at once,
#            where it says "you must specify the interrupt id"
# Seen:      a message in place of the decision ends the wait without a word, and the model is sent its call without a result, which
#            the vendors' APIs refuse. The approval that comes after it returns the thread as it is, whose last message reads like
#            an outcome; the payment is not made. On a thread that the checkpointer does not have (a mistyped id, an
#            InMemorySaver after a restart) the approval begins one: the model gets an empty list of messages, and its reply
#            is the result
# It matters to: buttons under approvals: before resuming, look whether get_state(config).interrupts has the id that was shown,
#            and resume by it: Command(resume={id: ...})
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "langgraph==1.2.24" "langchain==1.5.2" \
  "langchain-core==1.8.3" || exit 2
timeout 100 "$folder/venv/bin/python" - <<'PY'
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

requests, paid = [], []


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *args, **options):
        requests.append([message.type for message in messages])
        return super()._generate(messages, *args, **options)


@tool
def pay(amount: int) -> str:
    """Pays."""
    paid.append(amount)
    return "paid"


def make_agent():
    call = AIMessage("", tool_calls=[{"id": "call_1", "name": "pay", "args": {"amount": 17}}])
    replies = iter([call, AIMessage("Sunny."), AIMessage("How can I help?")])
    asks = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    return create_agent(Model(messages=replies), [pay], checkpointer=InMemorySaver(), middleware=[asks])


def on(thread: str):
    return {"configurable": {"thread_id": thread}}


APPROVED = Command(resume={"decisions": [{"type": "approve"}]})
agent = make_agent()
assert agent.invoke({"messages": [("user", "Pay 17.")]}, on("a"))["__interrupt__"]
agent.invoke({"messages": [("user", "How is the weather?")]}, on("a"))
print("a message in place of the decision: the model sees", requests[-1])
late = agent.invoke(APPROVED, on("a"))
print("the approval after it:", repr(late["messages"][-1].content), "| paid:", paid, "| interrupts:", late.get("__interrupt__"))
strange = agent.invoke(APPROVED, on("no such thread"))
print("an approval for no thread:", repr(strange["messages"][-1].content), "| the model saw", requests[-1])
assert requests[-2:] == [["human", "ai", "human"], []], f"it has changed: {requests}"
assert late["messages"][-1].content == "Sunny.", f"it has changed: {late}"
assert strange["messages"][-1].content == "How can I help?", f"it has changed: {strange}"
assert not paid, f"it has changed: {paid}"
PY
# Output of 2026-11-28:
# a message in place of the decision: the model sees ['human', 'ai', 'human']
# the approval after it: 'Sunny.' | paid: [] | interrupts: None
# an approval for no thread: 'How can I help?' | the model saw []
