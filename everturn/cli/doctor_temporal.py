"""What `everturn doctor` says about the server, the namespace and who polls there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final

from everturn.cli.doctor_finding import Finding, wrong_finding
from everturn.errors import EverturnError

if TYPE_CHECKING:
    from everturn.client.client import Client

TIMEOUT_SECONDS: Final = 10.0


async def temporal_findings(*, fix: bool) -> AsyncIterator[Finding]:
    from temporalio.service import RPCError

    from everturn.client.client import Client

    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            client = await Client.connect()
            yield await server_finding(client)
    except EverturnError as error:
        yield wrong_finding("Temporal", error)
        return
    except (RPCError, TimeoutError) as error:
        yield Finding("Temporal", "wrong", f"it doesn't answer: {error or 'no reply in time'}")
        return
    for part, look in (
        ("heartbeats", partial(heartbeats_finding, client)),
        ("namespace", partial(namespace_finding, client)),
        ("search attributes", partial(search_attributes_finding, client, fix=fix)),
        ("workers", partial(workers_finding, client)),
    ):
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS * 2):
                finding = await look()
        except EverturnError as error:
            finding = wrong_finding(part, error)
        except RPCError as error:
            cure = "Check TEMPORAL_NAMESPACE, and what TEMPORAL_API_KEY may do there."
            finding = Finding(part, "wrong", f"Temporal said no: {error.message}", cure)
        except TimeoutError:
            finding = Finding(part, "wrong", "no answer in time", "Try again; the server's own log may say more.")
        yield finding
        if part == "namespace" and finding.state == "wrong":
            return  # the other parts are of the namespace


async def server_finding(client: Client) -> Finding:
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

    info = await client.temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    address = client.temporal.service_client.config.target_host
    return Finding("Temporal", "ok", f"server {info.server_version or '(no version)'} at {address}")


async def heartbeats_finding(client: Client) -> Finding:
    """The heartbeat profile of a worker with these settings."""
    from everturn.heartbeats.profile_choice import is_cloud, profile_for
    from everturn.settings import Settings

    settings = Settings.load()
    connection = client.temporal.service_client.config
    profile = profile_for(settings.heartbeats, connection)
    profile_source = "by itself"
    if settings.heartbeats:
        profile_source = "EVERTURN_HEARTBEATS"
    elif is_cloud(connection):
        profile_source = "on Temporal Cloud"
    detail = f"{profile.name} ({profile_source}): {profile.in_words}"
    if is_cloud(connection) and profile.name == "quick":
        cure = "Temporal Cloud bills each heartbeat as an action. EVERTURN_HEARTBEATS=thrifty sends fewer."
        return Finding("heartbeats", "note", detail, cure)
    return Finding("heartbeats", "ok", detail)


async def namespace_finding(client: Client) -> Finding:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

    from everturn.cli.render import format_count
    from everturn.temporal.namespace import require_namespace

    await require_namespace(client.temporal)
    name = client.temporal.namespace
    described = await client.temporal.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
    days = described.config.workflow_execution_retention_ttl.ToTimedelta().days
    return Finding("namespace", "ok", f"{name!r}; ended conversations are kept for {format_count(days, 'day')}")


async def search_attributes_finding(client: Client, *, fix: bool) -> Finding:
    from everturn import names
    from everturn.temporal.search_attribute_setup import lacking_search_attributes, register_search_attributes

    lacking_for_lists = await lacking_search_attributes(client.temporal)
    lacking_for_searches = await lacking_search_attributes(
        client.temporal, wanted=names.SEARCHABLE | names.EVALUATIONS_SEARCHABLE
    )
    if (lacking_for_lists or lacking_for_searches) and fix:
        lacking = [*lacking_for_lists, *lacking_for_searches]
        await register_search_attributes(client.temporal, lacking)
        detail = f"registered: {', '.join(lacking)}; running workers use them after a restart"
        return Finding("search attributes", "ok", detail)
    if lacking_for_lists:
        return Finding(
            "search attributes",
            "wrong",
            f"the namespace lacks {', '.join(lacking_for_lists)}: conversations run, but can't be listed by status",
            "Register them: everturn doctor --fix; on Temporal Cloud, see docs/howto/use-temporal-cloud.md.",
        )
    if lacking_for_searches:
        purposes = {
            "to find conversations by tenant or metadata, and forks at once": names.SEARCHABLE,
            "to find judged answers by their score": names.EVALUATIONS_SEARCHABLE,
        }
        detail = "; ".join(
            f"{', '.join(missing)} is missing: {purpose}"
            for purpose, attributes in purposes.items()
            if (missing := [name for name in lacking_for_searches if name in attributes])
        )
        return Finding("search attributes", "note", detail, "To register it: everturn doctor --fix.")
    return Finding("search attributes", "ok", f"all {len(names.ALL_SEARCH_ATTRIBUTES)} are there")


async def workers_finding(client: Client) -> Finding:
    from everturn.client.pollers import RECENT_SECONDS, find_pollers, hosted_agents, sorted_out

    pollers = await find_pollers(client.temporal, client.task_queue)
    workers, gone = sorted_out(poller.identity for poller in pollers)
    # If a worker is killed, the server still lists it for a while.
    when = f"in the last {RECENT_SECONDS / 60:.0f} minutes"
    killed = f"; gone from this machine since it polled: {', '.join(gone[:5])}" if gone else ""
    if workers:
        detail = f"{len(workers)} polled task queue {client.task_queue!r} {when}: {', '.join(workers[:5])}"
        if agents := await hosted_agents(client.temporal, client.task_queue):
            detail += f"; they host {', '.join(sorted(agents))}"
        return Finding("workers", "ok", detail + killed)
    cure = "Start one: everturn worker --agents FILE.py."
    return Finding("workers", "wrong", f"none polls the task queue {client.task_queue!r}{killed}", cure)
