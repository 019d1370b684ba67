"""Which version of the code a worker runs, for Temporal's worker versioning."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from everturn.errors import InvalidSetting
from everturn.validation.spelling import known_fields

if TYPE_CHECKING:
    from everturn.settings import Settings

Versioning = Literal["auto_upgrade", "pinned"]

CONTROLLER_NAME: Final = "TEMPORAL_DEPLOYMENT_NAME"
CONTROLLER_BUILD_ID: Final = "TEMPORAL_WORKER_BUILD_ID"
"""What Temporal's worker controller for Kubernetes adds to the end of each container's environment (its
internal/k8s/deployments.go and internal/demo): so another variable of the container can't refer to them."""


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
    """What the environment says, in our variables or in those of Temporal's worker controller; None: no deployment."""
    name = settings.deployment
    build_id = settings.build_id
    if not name:
        name = os.environ.get(CONTROLLER_NAME)
        build_id = os.environ.get(CONTROLLER_BUILD_ID)
    if not name:
        return None
    return Deployment(name=name, build_id=build_id or "", versioning=settings.versioning)


def versioning_options(deployment: Deployment) -> dict[str, Any]:
    """For temporalio's Worker."""
    from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
    from temporalio.worker import WorkerDeploymentConfig

    version = WorkerDeploymentVersion(deployment_name=deployment.name, build_id=deployment.build_id)
    behavior = VersioningBehavior[deployment.versioning.upper()]
    config = WorkerDeploymentConfig(version, use_worker_versioning=True, default_versioning_behavior=behavior)
    return {"deployment_config": config}
