"""Calls of Temporal's services that go round the SDK's client: `temporal.workflow_service.describe_...(request)`.

A Temporal server closes each connection after five minutes (`frontend.keepAliveMaxConnectionAge`), and Cloud does so,
too (sdk-python, pull request 1829). A call that is made at that moment fails with "operation was canceled" before it
reaches the server (server 1.32.0, temporalio 1.35.0: at 1 of about 25 such moments). The SDK asks once more, but only
with `retry=True`, which the calls of its client set, and these have to: the tests' own as well, whose conversations
also move on to a new run, which a server answers with "workflow is closing" for a moment."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.source import MODULES, PACKAGE

TESTS = Path(__file__).parents[1]

SERVICES = ("workflow_service", "operator_service")

WITHOUT = {
    ("everturn/cli/connect.py", "describe_namespace"): "the connection is new, and its user waits",
    ("everturn/cli/doctor_temporal.py", "describe_namespace"): "the same",
    ("everturn/cli/doctor_temporal.py", "get_system_info"): "the same",
    ("everturn/cli/doctor_fairness.py", "poll_activity_task_queue"): "a poll that has a deadline",
    ("everturn/client/missing_worker.py", "describe_workflow_execution"): "a look that is taken again",
    ("everturn/live/live_activities.py", "describe_workflow_execution"): "a look that is taken again",
    ("everturn/temporal/namespace.py", "describe_namespace"): "it asks TRIES times itself, or as a program begins",
    ("everturn/temporal/temporal_errors.py", "describe_namespace"): "it asks again itself",
}
"""The module and the call, and why it is made once."""


def test_calls_of_temporals_services_are_made_again_when_the_server_closes_the_connection() -> None:
    without: set[tuple[str, str]] = set()
    calls = 0
    for path in [*MODULES.values(), *TESTS.glob("*/*.py")]:
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if any(service in source for service in SERVICES) else ():
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=service), attr=call)) if service in SERVICES:
                    calls += 1
                    if not any(keyword.arg == "retry" for keyword in node.keywords):
                        without.add((path.relative_to(PACKAGE.parent).as_posix(), call))
    assert calls > 20
    assert without == set(WITHOUT), "these need retry=True, or their reason in WITHOUT"
