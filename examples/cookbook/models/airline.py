"""Plays the models of airline.py."""

from typing import Any

from everturn.testing import call


def script(messages: list[dict[str, Any]]) -> Any:
    who, last = messages[0]["content"], messages[-1]
    question = [message["content"] for message in messages if message["role"] == "user"][-1]
    about_bags = "bag" in question
    if last["role"] == "tool" and ("theirs" in last["content"] or "Lisbon" in last["content"]):
        return last["content"]
    if who.startswith("Find out"):
        return call("transfer_to_bags" if about_bags else "transfer_to_seats", {"message": "They want help."})
    if who.startswith("You change seats"):
        if about_bags:
            return call("transfer_to_hotline", {"message": "It is about a bag."})
        return call("change_seat", {"seat": "12A"})
    return call("find_bag", {"tag": "4711"})
