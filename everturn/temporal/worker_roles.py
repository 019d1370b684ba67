"""What a worker does for conversations, and on which task queue: all of it on one, or some of it on queues of its own.

The conversations' own queue has the name that clients know. The queues of model turns and of tools are called after it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, get_args

from everturn import names
from everturn.errors import InvalidSetting
from everturn.validation.spelling import nearest_name

Role = Literal["workflows", "models", "tools"]
"""`workflows`: the steps between model turns and tools. `models`: model turns. `tools`: tool calls, and the functions
that decide about them."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
ALL: Final = frozenset(ROLES)

_OWN: Final[dict[Role, str]] = {"workflows": "", "models": names.MODELS_QUEUE, "tools": names.TOOLS_QUEUE}

MODEL_ACTIVITIES: Final = frozenset(
    {
        *(names.CALL_MODEL, names.EXTEND_PREFIX, names.KEEP_TRANSCRIPT),
        *(names.SEND_BATCH, names.FOLLOW_BATCH, names.CANCEL_BATCH),
    }
)
"""The activities of `models`. All others are those of tools."""


def own_queue(task_queue: str, role: Role) -> str:
    """The queue of a role that is apart from the conversations' `task_queue`."""
    return task_queue + _OWN[role]


def role_of_activity(activity: str) -> Role:
    """Whose work an activity is, by its name."""
    return "models" if activity in MODEL_ACTIVITIES else "tools"


def role_of(queue: str, task_queue: str, activity: str) -> Role | None:
    """The role of an activity at a queue, for a conversation of `task_queue`; None if the queue is a foreign one."""
    role = role_of_activity(activity)
    if queue not in (task_queue, own_queue(task_queue, role)):
        return None
    return role


def polled_by(task_queue: str, roles: Collection[Role]) -> str:
    """The one queue that a worker with these roles polls."""
    if "workflows" in roles:
        return task_queue
    return own_queue(task_queue, next(iter(roles)))


def in_words(roles: Collection[Role]) -> str:
    """As `--roles` takes them."""
    return ",".join(role for role in ROLES if role in roles)


def checked_roles(roles: Collection[str] | str | None) -> frozenset[Role]:
    """A worker's roles; None: all. Raises InvalidSetting."""
    if roles is None:
        return ALL
    given = [name.strip() for name in roles.split(",")] if isinstance(roles, str) else list(roles)
    for name in given:
        if name not in ROLES:
            cure = f"The roles are {', '.join(ROLES)}."
            if near := nearest_name(str(name), ROLES):
                cure = f"Did you mean {near!r}? {cure}"
            raise InvalidSetting(f"A worker was given the role {name!r:.100}.", cure=cure)
    checked = frozenset(role for role in ROLES if role in given)
    if not checked:
        raise InvalidSetting("A worker was given no role.", cure="Leave roles out: then it does everything.")
    if len(checked) > 1 and "workflows" not in checked:
        raise InvalidSetting(
            "A worker was given the roles models and tools, which are on two task queues.",
            cure="Start a worker for each: a worker polls one task queue.",
        )
    return checked
