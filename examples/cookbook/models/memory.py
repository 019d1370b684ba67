"""Plays the model of memory.py."""

from typing import Any

from everturn.testing import call


def script(messages: list[dict[str, Any]]) -> Any:
    knows, last = messages[0]["content"], messages[-1]
    if last["role"] == "tool":
        return "I will keep that in mind."
    if "cake" in last["content"]:
        return "An apple cake, without nuts." if "nuts" in knows else "A walnut cake."
    return call("remember", {"fact": "can't eat nuts"})
