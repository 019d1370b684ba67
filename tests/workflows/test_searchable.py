"""Metadata and tenant: found by where it was asked for, and shown in lists, the inbox and exports."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from everturn import Client, Encryption
from everturn.devserver import DevServer
from everturn.errors import Refused
from everturn.exporting import read_conversation, to_jsonl, to_markdown, write_sqlite
from everturn.temporal.namespace import Namespace
from everturn.tenants.metadata import index_keywords
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.histories import check_all
from tests.support.shell import Shell
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


async def found(client: Client, **wanted: object) -> list[str]:
    return [conversation.id async for conversation in client.conversations(**wanted)]  # type: ignore[arg-type]


async def test_a_conversation_is_found_by_what_it_was_asked_to_be_found_by(
    client: Client, scripted: Scripted, cached_conversations: int, shell: Shell, tmp_path: Path
) -> None:
    order, tenant = f"o'{uuid4().hex}", f"acme {uuid4().hex}"
    agent = agent_on(scripted(lambda _: "Hello."), name=f"clerk-{uuid4().hex[:8]}")
    async with hosting(client, agent, cached_conversations=cached_conversations):
        labels = {"order": order, "vip": True, "note": "hidden"}
        conversation = await client.start(
            agent, "Hi", tenant=tenant, metadata=labels, searchable=["order", "vip", "tenant", "order"]
        )
        other = await client.start(agent, "Hi", tenant=tenant, metadata=labels)
        await conversation.outcome()
        await other.outcome()
        await eventually(lambda: found(client, metadata={"order": order}))
        assert await found(client, metadata={"order": order, "vip": True}, tenant=tenant) == [conversation.id]
        assert await found(client, metadata={"order": order, "vip": False}) == []
        assert await found(client, metadata={"note": "hidden"}, agent=agent.name) == []
        again = await client.send(agent, "More", id=conversation.id)
        await again.outcome()
        both = lambda: found(client, metadata={"order": order})  # noqa: E731
        await eventually(lambda: _two(both))  # its next life, too
        listed = [conversation async for conversation in client.conversations(agent=agent.name)]
        assert {(one.tenant, one.metadata["note"]) for one in listed} == {(tenant, "hidden")}

        done = await asyncio.to_thread(shell.run, "list", "--agent", agent.name, "--metadata", f"order={order}")
        assert done.stdout.count(f"for {tenant}") == 2
        exported = await read_conversation(client, other.id)
    first = json.loads(to_jsonl(exported).splitlines()[0])
    assert (first["tenant"], first["metadata"]) == (tenant, labels)
    assert f"for {tenant}" in to_markdown(exported)
    assert "note: hidden" in to_markdown(exported)
    write_sqlite(tmp_path / "exported.db", [exported])
    with closing(sqlite3.connect(tmp_path / "exported.db")) as database:
        [row] = database.execute("SELECT tenant, metadata ->> 'note', metadata ->> 'order' FROM conversations")
    assert row == (tenant, "hidden", order)


async def test_a_conversation_is_found_by_its_tenant_without_being_asked(
    client: Client, scripted: Scripted, shell: Shell
) -> None:
    """So are those of agents that it asks, and those that other programs start."""
    tenant = f"acme {uuid4().hex}"
    helper = agent_on(scripted(["Here."]), name=f"helper-{uuid4().hex[:8]}")
    agent = agent_on(scripted([call(helper.name, {"message": "?"}, id="c1"), "Hello."]), tools=[helper])
    other = agent_on(scripted(["Hello."]), name="other")
    async with hosting(client, agent, helper, other):
        conversation = await client.start(agent, "Hi", tenant=tenant)
        await eventually(lambda: found(client, tenant=tenant))
        await conversation.outcome()
        given = {"agent": "other", "message": "Hi", "tenant": tenant}
        wire = await client.temporal.start_workflow(
            "Conversation", given, id=f"wire-{client.task_queue}", task_queue=client.task_queue
        )
        await wire.result()

        async def all_of_them() -> bool:
            return {*await found(client, tenant=tenant)} == {conversation.id, f"{conversation.id}.c1", wire.id}

        await eventually(all_of_them)
    done = await asyncio.to_thread(shell.run, "list", "--tenant", tenant)
    assert conversation.id in done.stdout
    none = await asyncio.to_thread(shell.run, "list", "--tenant", "nobody", "--agent", "clerk")
    assert "No conversation matches. Searched for: agent clerk, tenant nobody." in none.stderr.replace("\n", " ")
    assert "EVERTURN_INDEX_TENANTS" in none.stderr


@pytest.mark.parametrize("setting", ["off", "encryption", "minimal"])
async def test_a_tenant_that_must_not_be_plain_text_is_not_put_into_the_index(
    server: DevServer, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    if setting == "off":
        monkeypatch.setenv("EVERTURN_INDEX_TENANTS", "false")
    elif setting == "minimal":
        monkeypatch.setenv("EVERTURN_VISIBILITY", "minimal")
    encryption = Encryption({"k": b"k" * 32}) if setting == "encryption" else None
    client = await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}", encryption=encryption)
    tenant = f"acme-{uuid4().hex}"
    helper = agent_on(scripted(["Here."]), name="helper")
    agent = agent_on(scripted([call("helper", {"message": "?"}, id="c1"), "Hello."]), tools=[helper])
    async with hosting(client, agent, helper):
        conversation = await client.start(agent, "Hi", tenant=tenant)
        await conversation.outcome()
        for one in (conversation.id, f"{conversation.id}.c1"):
            described = await client.temporal.get_workflow_handle(one).describe()
            assert tenant not in str(described.typed_search_attributes)
    if not encryption:
        await check_all(client)


def test_what_there_is_no_room_for_is_left_out_of_the_index() -> None:
    """Temporal would turn down the start."""
    labels = [f"{number}={'x' * 240}" for number in range(7)]  # 1,722 bytes of 2,000
    assert index_keywords(labels, tenant="acme") == [*labels, "tenant=acme", "fork-of="]
    assert index_keywords(["tenant=acme"], tenant="acme") == ["tenant=acme", "fork-of="]
    assert "tenant" not in str(index_keywords([*labels, "8=" + "x" * 240], tenant="acme" * 20))


async def _two(look: Callable[[], object]) -> bool:
    return len(await look()) == 2  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"searchable": ["ordr"], "metadata": {"order": "81"}}, "searchable= names 'ordr'"),
        ({"searchable": ["tenant"], "metadata": {"tenant": "acme"}, "tenant": "other"}, "means something else"),
        ({"searchable": ["a"]}, "the metadata has nothing"),
        ({"searchable": [str(number) for number in range(11)]}, "searchable"),
        ({"searchable": [*"abcdefghi"], "metadata": dict.fromkeys("abcdefghi", "x" * 240)}, "too long"),
    ],
)
async def test_what_makes_no_sense_to_be_found_by_is_refused(
    client: Client, options: dict[str, object], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        await client.start("clerk", "Hi", **options)  # type: ignore[arg-type]


async def test_nothing_is_put_into_the_index_of_a_namespace_that_can_not_take_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal would refuse the start, in its own words."""
    monkeypatch.setattr(Namespace, "searchable", _no)
    with pytest.raises(Refused, match="lacks the search attribute EverturnMetadata") as refused:
        await client.start("clerk", "Hi", metadata={"order": "81"}, searchable=["order"])
    assert "everturn doctor --fix" in refused.value.cure


async def test_with_little_visibility_nothing_is_put_into_the_index(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_VISIBILITY", "minimal")
    with pytest.raises(Refused, match="EVERTURN_VISIBILITY=minimal"):
        await client.start("clerk", "Hi", metadata={"order": "81"}, searchable=["order"])


async def _no(_: Namespace) -> bool:
    return False
