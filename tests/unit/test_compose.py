"""docker-compose.yml as Compose itself reads it. No container is started."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from everturn.devserver import find_binary
from everturn.settings import Settings
from tests.stack import compose, programs

ROOT = Path(__file__).parents[2]
PASSWORD = "a-password-for-this-test"
ONE_SHOT = {"schema", "namespace"}

COMPOSE = shutil.which("docker-compose")
needs_compose = pytest.mark.skipif(COMPOSE is None, reason="docker-compose is not installed")


def read_by_compose(*, password: str, files: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    # An environment of our own: the developer's keys and .env stay out of it.
    environment = {"POSTGRES_PASSWORD": password, "OPENAI_API_KEY": "sk-from-the-environment"}
    return subprocess.run(
        [str(COMPOSE), "--env-file", ".env.example", *(f"--file={file}" for file in files), "config"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    done = read_by_compose(password=PASSWORD)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


@needs_compose
def test_every_image_has_a_full_version(services: dict[str, Any]) -> None:
    images = {name: service["image"] for name, service in services.items() if "build" not in service}
    assert len(images) == len(services) - 1
    assert {name: image for name, image in images.items() if not re.search(r":\d+\.\d+(\.\d+)?$", image)} == {}
    assert re.fullmatch(r"3\.\d+\.\d+", services["worker"]["build"]["args"]["PYTHON_VERSION"])


def test_the_versions_are_those_that_the_tests_run_on() -> None:
    versions = compose.example()
    told = subprocess.run([str(asyncio.run(find_binary())), "--version"], capture_output=True, text=True, check=True)
    server, ui = re.findall(r"\((?:Server) ([\d.]+), UI ([\d.]+)\)", told.stdout)[0]
    assert versions["TEMPORAL_VERSION"] == versions["TEMPORAL_ADMIN_TOOLS_VERSION"] == server
    assert versions["TEMPORAL_UI_VERSION"] == ui
    assert versions["PYTHON_VERSION"].startswith("3.11."), "the oldest that everturn runs on, which CI has"


@pytest.mark.skipif(not programs.postgres(), reason="PostgreSQL of Debian is not installed")
def test_compose_has_the_postgresql_that_the_stack_runs_on() -> None:
    told = subprocess.run([f"{programs.postgres()}/postgres", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.split()[2].split(".")[0] == compose.example()["POSTGRES_VERSION"].split(".")[0]


def test_health_checks_ask_an_address_and_not_localhost_which_may_be_another_one() -> None:
    told = compose.ROOT.joinpath("docker-compose.yml").read_text()
    tests = re.findall(r"test: \[(.*)\]", told)
    assert len(tests) == 4
    assert not [test for test in tests if "localhost" in test]


@needs_compose
def test_the_stack_reads_what_compose_reads(services: dict[str, Any]) -> None:
    ours = compose.read({"POSTGRES_PASSWORD": PASSWORD, "OPENAI_API_KEY": "sk-from-the-environment"})
    assert ours.services.keys() == services.keys()
    for name, service in services.items():
        told = {variable: str(value) for variable, value in service.get("environment", {}).items() if value is not None}
        assert ours[name].environment == told, name
        assert ours[name].version == ("" if "build" in service else service["image"].rpartition(":")[2])
        if name == "postgres":
            assert ours[name].command == service["command"]


@needs_compose
def test_whatever_keeps_running_has_a_health_check_and_comes_back(services: dict[str, Any]) -> None:
    running = {name: service for name, service in services.items() if name not in ONE_SHOT}
    assert [name for name, service in running.items() if not service.get("healthcheck", {}).get("test")] == []
    assert [name for name, service in running.items() if service.get("restart") != "unless-stopped"] == []


@needs_compose
def test_everything_waits_for_what_it_needs(services: dict[str, Any]) -> None:
    waits = {
        (name, needed): how["condition"]
        for name, service in services.items()
        for needed, how in service.get("depends_on", {}).items()
    }
    assert waits == {
        ("schema", "postgres"): "service_healthy",
        ("temporal", "schema"): "service_completed_successfully",
        ("namespace", "temporal"): "service_healthy",
        ("ui", "temporal"): "service_healthy",
        ("worker", "namespace"): "service_completed_successfully",
    }


@needs_compose
def test_two_workers_have_time_to_drain(services: dict[str, Any]) -> None:
    assert services["worker"]["deploy"]["replicas"] == 2
    # Compose says 2m0s or 120s, by version.
    assert services["worker"]["stop_grace_period"] in {"2m", "2m0s", "120s"}


@needs_compose
def test_with_roles_each_part_has_workers_that_drain_and_are_watched() -> None:
    done = read_by_compose(password=PASSWORD, files=("docker-compose.yml", "docker-compose.roles.yml"))
    assert done.returncode == 0, done.stderr
    services: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    roles = {name: one["environment"].pop("EVERTURN_ROLES") for name, one in services.items() if "build" in one}
    assert roles == {"worker": "workflows,tools", "models": "models"}
    assert services["models"] == services["worker"]


def test_a_worker_may_finish_a_model_call_of_40_seconds_before_it_is_killed() -> None:
    worker = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["worker"]
    drain = Settings.load().drain_seconds
    assert worker["environment"]["EVERTURN_DRAIN_SECONDS"] == f"${{EVERTURN_DRAIN_SECONDS:-{drain:.0f}}}"
    assert 40 < drain <= float(worker["stop_grace_period"].removesuffix("s")) - 20, "20 s to hand over and to close"


@needs_compose
def test_keys_reach_the_worker_and_nobody_else(services: dict[str, Any]) -> None:
    having = {name for name, service in services.items() if "OPENAI_API_KEY" in service.get("environment", {})}
    assert having == {"worker"}
    assert services["worker"]["environment"]["OPENAI_API_KEY"] == "sk-from-the-environment"


@needs_compose
def test_ports_are_open_to_this_machine_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    # A text in version 1, a mapping in version 2.
    hosts = {port.rsplit(":", 2)[0] if isinstance(port, str) else port.get("host_ip") for port in ports}
    assert hosts == {"127.0.0.1"}


@needs_compose
def test_without_a_password_it_says_where_to_set_it() -> None:
    done = read_by_compose(password="")
    assert done.returncode != 0
    assert "set it in .env" in done.stderr


def test_no_file_has_a_secret_in_it() -> None:
    """Every value that is secret by its name comes from the environment, or is empty."""
    secret = re.compile(r"^[ -]*(\w*(?:PASSWORD|PWD|_KEY|_TOKEN))[ \t]*[:=][ \t]*(\S.*)$", re.MULTILINE)
    for name in ("docker-compose.yml", ".env.example", "Dockerfile"):
        for variable, value in secret.findall((ROOT / name).read_text()):
            assert value.startswith("${"), f"{name}: {variable}"


def test_the_namespace_gets_the_search_attributes_that_we_use() -> None:
    from everturn.names import ALL_SEARCH_ATTRIBUTES

    script = (ROOT / "deploy" / "namespace.sh").read_text()
    assert dict(re.findall(r"--name (\w+) --type (\w+)", script)) == ALL_SEARCH_ATTRIBUTES


def test_the_image_runs_as_nobody_special_and_hears_sigterm() -> None:
    steps = (ROOT / "Dockerfile").read_text()
    assert "\nUSER everturn\n" in steps
    assert "\nSTOPSIGNAL SIGTERM\n" in steps
    assert '\nCMD ["python", "worker.py"]\n' in steps
    assert "--require-hashes" in steps


@pytest.mark.parametrize("where", ["Dockerfile", "Makefile", "benchmarks/measures/imports.py"])
def test_what_is_locked_is_installed_without_looking_for_anything_newer(where: str) -> None:
    # A lock pins `google-auth`, and a package in it asks for `google-auth[requests]`: pip takes the newest, which
    # has no hash here, and a new machine can't install from the day on which google-auth is released again.
    text = (ROOT / where).read_text()
    installed = re.findall(r"pip install.*--require-hashes|\*install,.*--require-hashes", text)
    assert installed
    assert [line for line in installed if "--no-deps" not in line] == []


def test_the_image_has_the_extras_that_settings_switch_on_and_room_for_what_agents_import() -> None:
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements-worker.lock").read_text(), re.MULTILINE))
    assert {"cryptography", "zstandard", "mcp", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= pinned
    assert "pytest" not in pinned
    own = (ROOT / "deploy" / "agents.lock").read_text().splitlines()
    assert all(line.startswith("#") for line in own), "what is here is in everybody's image"
    steps = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes --requirement requirements-worker.lock --requirement deploy/agents.lock" in steps
