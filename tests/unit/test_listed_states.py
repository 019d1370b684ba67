"""What lists and the Web UI show of a conversation: search attributes, and the current details."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import SearchAttributePair

from everturn import names
from everturn.carryover import CarryOver, WorkerFacts
from everturn.payloads import Start
from everturn.plans import UseResult
from everturn.records import Successor, Text, ToolCall, ToolResult, Usage
from everturn.sizes import MAX_KEYWORD_INT
from everturn.state import State
from everturn.workflows import visibility
from everturn.workflows.visibility import CurrentDetails
from tests.support.played_runs import PlayedConversation

FACTS = WorkerFacts(indexed=True, model="openai:m")
PAY = ToolCall(call_id="a", name="pay")


def set_by_client(**more: Any) -> tuple[SearchAttributePair[Any], ...]:
    """What whoever started the conversation has put into the index."""
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(visibility.STATUS, "running"),
        SearchAttributePair(visibility.AGENT, "clerk"),
    ]
    if "model" in more:
        pairs.append(SearchAttributePair(visibility.MODEL, more["model"]))
    if "metadata" in more:
        pairs.append(SearchAttributePair(visibility.METADATA, more["metadata"]))
    return tuple(pairs)


def shown(run: PlayedConversation, name: str) -> list[Any]:
    return [attributes.get(name) for attributes in run.listed]


def test_a_namespace_without_the_attributes_is_told_nothing() -> None:
    run = PlayedConversation(keep_open=60.0).begin().reply("Hi.", facts=WorkerFacts(model="openai:m"))
    assert run.listed == []


def test_what_the_client_has_set_is_not_written_again() -> None:
    run = PlayedConversation(keep_open=60.0, search_attributes=set_by_client()).begin()
    assert run.listed == []
    run.reply("Hi.", usage=Usage(input_tokens=3, output_tokens=4), cost_usd=0.5, facts=FACTS)
    assert run.listed == [
        {
            names.EVERTURN_STATUS: "idle",
            names.EVERTURN_AGENT: "clerk",
            names.EVERTURN_MODEL: "openai:m",
            names.EVERTURN_TOKENS: 7,
            names.EVERTURN_COST_USD: 0.5,
        }
    ]
    run.signal(names.MESSAGE, text="Next")
    assert shown(run, names.EVERTURN_STATUS) == ["idle", "running"]


def test_a_turn_writes_nothing_if_the_state_stays() -> None:
    run = PlayedConversation(keep_open=60.0, search_attributes=set_by_client()).begin()
    done = ToolResult(call_id="a", name="pay", content=(Text(text="done"),))
    run.reply("", PAY, plan=(UseResult(call_id="a", result=done),))
    assert (run.activities, run.listed) == ([names.CALL_MODEL], [])


def test_another_agent_in_charge_is_written_though_the_state_stays() -> None:
    run = PlayedConversation(keep_open=60.0, search_attributes=set_by_client()).begin()
    handed = ToolResult(call_id="a", name="pay", successor=Successor(agent="expert"))
    run.reply("", PAY, plan=(UseResult(call_id="a", result=handed),))
    assert (shown(run, names.EVERTURN_STATUS), shown(run, names.EVERTURN_AGENT)) == (["running"], ["expert"])


def test_a_version_of_the_agent_is_written_only_with_the_next_change() -> None:
    run = PlayedConversation(keep_open=60.0, search_attributes=set_by_client()).begin()
    done = ToolResult(call_id="a", name="pay", content=(Text(text="done"),))
    run.reply("", PAY, plan=(UseResult(call_id="a", result=done),), facts=WorkerFacts(agent="clerk@2", indexed=True))
    assert run.listed == []
    run.reply("Hi.")
    assert shown(run, names.EVERTURN_AGENT) == ["clerk@2"]


@pytest.mark.parametrize(("cost", "written"), [(0.0, 0.0), (None, None)])
def test_a_cost_that_is_not_known_is_not_written(cost: float | None, written: float | None) -> None:
    run = PlayedConversation(keep_open=60.0, search_attributes=set_by_client()).begin().reply("Hi.", cost_usd=cost)
    assert shown(run, names.EVERTURN_COST_USD) == [written]


@pytest.mark.parametrize("cost", [float("inf"), float("nan")])
def test_a_cost_that_is_no_number_is_not_written(cost: float) -> None:
    """No search attribute takes it: the workflow task would fail for ever."""
    state = State(Start(agent="clerk"), run_began=0.0)
    state.totals.cost_usd = cost
    assert visibility.COST_USD not in [update.key for update in visibility._state_attributes(state, "")]


def test_the_most_tokens_are_as_many_as_the_index_takes() -> None:
    run = PlayedConversation(keep_open=60.0, search_attributes=set_by_client()).begin()
    run.reply("Hi.", usage=Usage(input_tokens=MAX_KEYWORD_INT, output_tokens=1))
    assert shown(run, names.EVERTURN_TOKENS) == [MAX_KEYWORD_INT]


def test_a_conversation_that_is_shown_minimally_says_only_its_state() -> None:
    run = PlayedConversation(
        keep_open=60.0, visibility="minimal", search_attributes=set_by_client(model="openai:m")
    ).begin()
    handed = ToolResult(call_id="a", name="pay", successor=Successor(agent="expert"))
    run.reply("", PAY, plan=(UseResult(call_id="a", result=handed),), facts=FACTS).reply("Hi.")
    assert run.listed == [{names.EVERTURN_STATUS: "idle"}]
    assert [command.summary for command in run.of_kind("schedule_activity")] == ["turn 1", "turn 2"]


def test_a_turn_says_its_model_and_the_agent_that_took_over() -> None:
    run = PlayedConversation(keep_open=60.0, search_attributes=set_by_client(model="openai:first")).begin()
    handed = ToolResult(call_id="a", name="pay", successor=Successor(agent="expert"))
    run.reply("", PAY, plan=(UseResult(call_id="a", result=handed),), facts=WorkerFacts(model="openai:second"))
    run.fail_turn(fallback="openai:third")
    summaries = [command.summary for command in run.of_kind("schedule_activity")]
    assert summaries == ["turn 1 · first", "turn 2 · expert · second", "turn 2 · expert · third"]


@pytest.mark.parametrize(
    ("tenant", "indexed", "metadata", "written"),
    [
        ("acme", True, None, True),
        ("acme", False, None, False),
        ("", True, None, False),
        ("acme", True, ["tenant=acme"], False),
    ],
)
def test_a_tenant_is_written_once_if_nobody_has_and_it_may_be(
    tenant: str, indexed: bool, metadata: list[str] | None, *, written: bool
) -> None:
    set_before = set_by_client() if metadata is None else set_by_client(metadata=metadata)
    run = PlayedConversation(keep_open=60.0, tenant=tenant, search_attributes=set_before).begin()
    run.reply("Hi.", facts=WorkerFacts(indexed=True, tenants_indexed=indexed)).signal(names.MESSAGE, text="Next")
    assert [names.EVERTURN_METADATA in attributes for attributes in run.listed] == [written, False]


def test_a_worker_that_has_sent_no_facts_says_nothing_of_a_tenant() -> None:
    run = PlayedConversation(keep_open=60.0, tenant="acme", search_attributes=set_by_client()).begin().reply("Hi.")
    assert [names.EVERTURN_METADATA in attributes for attributes in run.listed] == [False]


def test_the_first_facts_have_the_state_written() -> None:
    run = PlayedConversation(message=(), keep_open=60.0, carry=CarryOver(facts=FACTS)).begin()
    assert shown(run, names.EVERTURN_STATUS) == ["idle"]


# ---------------------------------------------------------------- in the Web UI


def details(run: PlayedConversation) -> str:
    """As whoever looks at it asks for them, within the workflow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow, "info", lambda: SimpleNamespace(workflow_id="talk"))
        return run.conversation.visibility.current_details()


def test_the_details_have_the_last_messages_the_unseen_too() -> None:
    run = PlayedConversation(keep_open=60.0).begin().reply("Hi.").signal(names.MESSAGE, text="And then?")
    text = details(run)
    assert "clerk" in text
    assert "Hi." in text
    assert "And then?" in text


def test_the_details_of_what_is_shown_minimally_have_no_words() -> None:
    run = PlayedConversation(keep_open=60.0, visibility="minimal").begin().reply("Hi.")
    text = details(run)
    assert "A conversation" in text
    assert not [word for word in ("clerk", "Hi.", "Hello") if word in text]


@pytest.mark.parametrize(
    "answer", [WorkflowMetadata(), {"state": "idle"}], ids=["the metadata", "another query's answer"]
)
async def test_the_details_are_written_when_somebody_asks_for_them(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = SimpleNamespace(current_details=lambda: "as it is now")
    monkeypatch.setattr(workflow, "instance", lambda: SimpleNamespace(visibility=shown))

    async def handle_query(_: Any) -> Any:
        return answer

    theirs: Any = SimpleNamespace(handle_query=handle_query)
    asked: Any = None
    answered = await CurrentDetails(theirs).handle_query(asked)
    assert answered is answer
    if isinstance(answer, WorkflowMetadata):
        assert answer.current_details == "as it is now"
