"""Names that an application's worker has already: refused, since the one would run in the other's place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from temporalio.activity import _Definition as ActivityDefinition
from temporalio.workflow import _Definition as WorkflowDefinition

from everturn import names
from everturn.errors import InvalidSetting
from everturn.temporal.worker_roles import Role, in_words
from everturn.worker.hosting import Hosting, names_of

ELSEWHERE: Final = "host the agents on another task queue: everturn.Worker(client, agents=[...], task_queue=...)."


def refuse_roles(config: Mapping[str, Any], roles: Collection[Role]) -> None:
    """A worker without `workflows` polls another queue than the one that it is given. Raises InvalidSetting if the
    application has workflows of its own on it."""
    if "workflows" not in roles and config.get("workflows"):
        raise InvalidSetting(
            f"The worker has workflows of its own, but everturn's roles here are {in_words(roles)}.",
            cure="Add the role workflows, or start a worker of its own for that role.",
        )


def refuse_clashes(config: Mapping[str, Any], added: Sequence[Callable[..., Any]]) -> None:
    """`config`: the worker's, without the activities that are `added`. Raises InvalidSetting."""
    if any(isinstance(definition, Hosting) for definition in config.get("interceptors", ())):
        raise InvalidSetting(
            "Two EverturnPlugins host agents on one worker.",
            cure="Give one of them all agents. A worker takes over its client's plugins.",
        )
    workflows = [WorkflowDefinition.from_class(definition) for definition in config.get("workflows", ())]
    workflow_names = {definition.name for definition in workflows if definition is not None}
    for name in sorted(names.ON_WORKERS):
        if name in workflow_names:
            raise InvalidSetting(
                f"The worker has a workflow called {name!r}, which is the name of one of everturn's workflows.",
                cure=f"Give yours another name, @workflow.defn(name='My{name}'); or {ELSEWHERE}",
            )
    activities = config.get("activities", ())
    if any(not ActivityDefinition.must_from_callable(definition).name for definition in activities):
        raise InvalidSetting(
            "The worker has a dynamic activity (dynamic=True), but everturn needs its own: "
            "it hands tools that this worker lacks to one that has them.",
            cure=f"To keep yours, {ELSEWHERE}",
        )
    for name in sorted(names_of(activities) & names_of(added)):
        if name in names.RESERVED_TOOL_NAMES:
            raise InvalidSetting(
                f"The worker has an activity called {name!r}, which is the name of one of everturn's activities.",
                cure=f"Give yours another name, @activity.defn(name='my_{name}'); or {ELSEWHERE}",
            )
        raise InvalidSetting(
            f"The worker has an activity called {name!r}, but one of its agents has a tool "
            "of the same name, and tools run as activities.",
            cure="Give all tools' activities a prefix, EverturnPlugin(prefix='agent_'); give the "
            f"tool another name, @tool(name='agent_{name}'); or {ELSEWHERE}",
        )
