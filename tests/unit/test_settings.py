"""What the environment may say, and how it is refused."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer import BadParameter

from everturn import Agent, Client, Deployment, EverturnPlugin, Worker
from everturn.cli.options import settings_with
from everturn.errors import InvalidSetting
from everturn.settings import Settings
from everturn.temporal.connect_options import connect_options, temporal_is_configured
from everturn.worker.deployment import of_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("EVERTURN_", "TEMPORAL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # no profile of the developer's own
    monkeypatch.setenv("HOME", str(tmp_path))


def test_without_variables_the_defaults_hold() -> None:
    assert Settings.load() == Settings(task_queue="everturn", agents=(), log="console", log_level="info")


def test_agents_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_AGENTS", "shop:clerk, examples/travel.py,")
    assert Settings.load().agents == ("shop:clerk", "examples/travel.py")


def test_an_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_TASK_QUEUE", "")
    monkeypatch.setenv("EVERTURN_LOG", "")
    assert Settings.load() == Settings()


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("EVERTURN_LOG", "jsn", ["EVERTURN_LOG='jsn'", "'console' or 'json'"]),
        ("EVERTURN_LOG_LEVEL", "loud", ["EVERTURN_LOG_LEVEL='loud'", "'debug'"]),
        ("EVERTURN_MAX_PREFIX_MB", "-1", ["EVERTURN_MAX_PREFIX_MB='-1'"]),
        ("EVERTURN_METRICS", "9464", ["EVERTURN_METRICS='9464'"]),
        ("EVERTURN_STREAM_SECONDS", "9", ["EVERTURN_STREAM_SECONDS='9'", "1.5"]),
        ("EVERTURN_HEARTBEATS", "lazy", ["EVERTURN_HEARTBEATS='lazy'", "'quick' or 'thrifty'"]),
        ("EVERTURN_TASKQUEUE", "x", ["EVERTURN_TASKQUEUE", "Did you mean EVERTURN_TASK_QUEUE?"]),
        ("EVERTURN_COLOUR_OF_SKY", "x", ["EVERTURN_COLOUR_OF_SKY", "EVERTURN_AGENTS"]),
    ],
)
def test_what_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: list[str]) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidSetting) as refusal:
        Settings.load()
    assert [words for words in said if words not in str(refusal.value)] == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"BUILD_ID": "7"}, None),
        ({"DEPLOYMENT": "clerks", "BUILD_ID": "7"}, Deployment(name="clerks", build_id="7")),
        (
            {"DEPLOYMENT": "clerks", "BUILD_ID": "1.0", "VERSIONING": "Pinned"},
            Deployment(name="clerks", build_id="1.0", versioning="pinned"),
        ),
    ],
)
def test_a_deployment_is_named_whole(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: Deployment | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"EVERTURN_{name}", value)
    assert of_settings(Settings.load()) == expected


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ({}, Deployment(name="clerks/shop", build_id="v2-5f3c")),
        ({"BUILD_ID": "7"}, Deployment(name="clerks/shop", build_id="v2-5f3c")),
        ({"DEPLOYMENT": "clerks", "BUILD_ID": "7"}, Deployment(name="clerks", build_id="7")),
    ],
)
def test_what_temporals_worker_controller_sets_is_a_deployment(
    monkeypatch: pytest.MonkeyPatch, ours: dict[str, str], expected: Deployment
) -> None:
    monkeypatch.setenv("TEMPORAL_DEPLOYMENT_NAME", "clerks/shop")
    monkeypatch.setenv("TEMPORAL_WORKER_BUILD_ID", "v2-5f3c")
    for name, value in ours.items():
        monkeypatch.setenv(f"EVERTURN_{name}", value)
    assert of_settings(Settings.load()) == expected


@pytest.mark.parametrize(("name", "build_id"), [("clerks", None), ("the.clerks", "7"), ("a:b", "7")])
def test_half_a_deployment_is_refused(name: str, build_id: str | None) -> None:
    with pytest.raises(InvalidSetting, match="build ID"):
        of_settings(Settings(deployment=name, build_id=build_id))


async def test_a_worker_takes_its_memory_bounds_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_CACHED_CONVERSATIONS", "7")
    monkeypatch.setenv("EVERTURN_MAX_PREFIX_MB", "2")
    client, agents = await Client.connect(lazy=True), [Agent("clerk", model="scripted:x")]
    worker = Worker(client, agents=agents)
    assert (worker._plugin.hosted.cached_conversations, worker.prefixes.max_bytes) == (7, 2 * 1024**2)
    worker = Worker(client, agents=agents, cached_conversations=0, max_prefix_bytes=0)
    assert (worker._plugin.hosted.cached_conversations, worker.prefixes.max_bytes) == (0, 0)


def test_temporal_is_at_its_usual_address_unless_told() -> None:
    assert connect_options() == {"target_host": "localhost:7233", "namespace": "default"}
    assert not temporal_is_configured()


def test_temporals_own_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example:7233")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "shop")
    assert connect_options() == {"target_host": "temporal.example:7233", "namespace": "shop"}
    assert temporal_is_configured()


def test_a_profile_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text('[profile.cloud]\naddress = "cloud.example:7233"\nnamespace = "shop"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    monkeypatch.setenv("TEMPORAL_PROFILE", "cloud")
    assert connect_options() == {"target_host": "cloud.example:7233", "namespace": "shop"}
    assert temporal_is_configured()


def test_a_key_is_passed_on_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "cloud.example:7233")
    monkeypatch.setenv("TEMPORAL_API_KEY", "tk-very-secret")
    options = connect_options()
    assert options["api_key"] == "tk-very-secret"
    assert "secret" not in f"{options} {options!r}"
    assert "cloud.example" in repr(options)


@pytest.mark.parametrize(
    ("variables", "file", "said"),
    [
        ({"TEMPORAL_PROFILE": "nope"}, None, "Profile 'nope' not found"),
        ({"TEMPORAL_CONFIG_FILE": "/no/such.toml"}, None, "TEMPORAL_CONFIG_FILE='/no/such.toml' is not a file"),
        ({"TEMPORAL_TLS_CLIENT_CERT_PATH": "/no/such.pem"}, None, "'/no/such.pem', but it can't be read"),
        ({}, '[profile.default]\napi_key = "tk-very-secret\n', "line 2"),
        ({}, '[profile.default]\napi_key = ["tk-very-secret"]\n', "line 2"),
    ],
    ids=["profile", "file", "certificate", "syntax", "type"],
)
def test_temporal_settings_that_cannot_be_read_are_named_without_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], file: str | None, said: str
) -> None:
    if file is not None:
        (tmp_path / "temporal.toml").write_text(file)
        variables = {"TEMPORAL_CONFIG_FILE": str(tmp_path / "temporal.toml")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSetting) as refusal:
        connect_options()
    assert said in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_time_of_a_restore_has_its_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERTURN_RESTORED_AT", "2026-11-22T18:00:00Z")
    assert Settings.load().restored_at == datetime(2026, 11, 22, 18, tzinfo=UTC)
    monkeypatch.setenv("EVERTURN_RESTORED_AT", "2026-11-22T18:00:00")
    with pytest.raises(InvalidSetting, match=r"EVERTURN_RESTORED_AT.*timezone"):
        Settings.load()
    monkeypatch.delenv("EVERTURN_RESTORED_AT")
    with pytest.raises(InvalidSetting, match="with its time zone"):
        EverturnPlugin(restored_at=datetime(2026, 11, 22))  # noqa: DTZ001
    with pytest.raises(BadParameter, match="with its time zone"):
        settings_with(None, None, restored_at="yesterday")
