"""Plays the models of research_team.py: the editor, the researcher and the checker."""

from typing import Any

from everturn.testing import call


def script(messages: list[dict[str, Any]]) -> Any:
    who, turn = messages[0]["content"], sum(message["role"] == "assistant" for message in messages)
    if who.startswith("Answer"):
        topic = "heartbeats" if "notice" in messages[1]["content"] else "temporal"
        return call("search", {"words": topic}) if turn == 0 else messages[-1]["content"]
    if who.startswith("Search"):
        return call("search", {"words": "heartbeats temporal"}) if turn == 0 else "The library supports both claims."
    draft = "By its heartbeats: once they stop, it is lost. A run may have 51,200 events."
    look_ups = [
        call("researcher", {"message": "How does Temporal notice a lost activity?"}),
        call("researcher", {"message": "How many events may a run have?"}),
    ]
    return [look_ups, call("checker", {"message": draft}), draft][turn]
