"""Which version of the code a worker runs, for Temporal's worker versioning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from everturn.errors import InvalidSetting
from everturn.validation.spelling import known_fields

if TYPE_CHECKING:
    from everturn.settings import Settings

Versioning = Literal["auto_upgrade", "pinned"]


@known_fields(InvalidSetting)
@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A version of a worker deployment. Raises InvalidSetting for names that Temporal would not take.

    `versioning`: what happens to running conversations when another version becomes the current one. With
    `auto_upgrade`, they move to it at their next step. With `pinned`, they stay, even when they go on as a new run,
    and need a worker of this version.
    """

    name: str
    """Without dots and colons."""
    build_id: str
    """This version's, such as a date or a commit."""
    versioning: Versioning = "auto_upgrade"

    def __post_init__(self) -> None:
        # Temporal writes a version as `name.build_id`, and reads the name up to the first dot.
        if not self.name or "." in self.name or ":" in self.name or not self.build_id:
            raise InvalidSetting(
                f"Deployment {self.name!r} with build ID {self.build_id!r} is invalid.",
                cure="Both are needed, and the name has no dot and no colon: 'clerks' and '2026-03-01'.",
            )


def of_settings(settings: Settings) -> Deployment | None:
    """What the environment says; None if it names no deployment."""
    if not settings.deployment:
        return None
    return Deployment(name=settings.deployment, build_id=settings.build_id or "", versioning=settings.versioning)


def options(deployment: Deployment) -> dict[str, Any]:
    """For temporalio's Worker."""
    from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
    from temporalio.worker import WorkerDeploymentConfig

    version = WorkerDeploymentVersion(deployment_name=deployment.name, build_id=deployment.build_id)
    behavior = VersioningBehavior[deployment.versioning.upper()]
    config = WorkerDeploymentConfig(version, use_worker_versioning=True, default_versioning_behavior=behavior)
    return {"deployment_config": config}
