"""What the stack is made of; and with STACK=1, as root, the whole of it: minutes, and the machine for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.crash import stack_storm
from tests.crash.storm import Plan
from tests.stack import compose, hosts, stack
from tests.stack.cluster import BALANCER, SERVICES, Cluster
from tests.stack.compose import ROOT
from tests.stack.hosts import Host
from tests.stack.programs import Programs
from tests.stack.watch import queries

FOR_REAL = pytest.mark.skipif("STACK" not in os.environ, reason="it takes minutes, and root: STACK=1")
MINUTES = 60


def made(**options: object) -> stack.Stack:
    """One that is not started."""
    return stack.Stack(**options)  # type: ignore[arg-type]


def cluster(folder: Path) -> Cluster:
    (folder / "logs").mkdir()
    nowhere = Programs(*[folder] * 5)
    given = compose.read({"POSTGRES_PASSWORD": "secret"})
    one = made()
    return Cluster(
        given, nowhere, "10.0.0.1", one.balancer_host, one.service_hosts, folder, dynamic={"some.key": '"5s"'}
    )


def test_there_are_two_of_each_service_and_every_host_has_an_address_of_its_own() -> None:
    one = made(workers=4)
    assert Counter(service for service, _ in one.service_hosts) == dict.fromkeys(SERVICES, 2)
    assert len({host.address for host in one.hosts}) == len({host.cable for host in one.hosts}) == len(one.hosts)
    assert max(len(host.cable) for host in one.hosts) <= 15, "the kernel takes no longer name"


def test_a_service_gets_what_compose_gives_it_but_for_who_and_where_it_is(tmp_path: Path) -> None:
    given = compose.read({"POSTGRES_PASSWORD": "secret"})["temporal"].environment
    ours = cluster(tmp_path).environment("history", Host("history-1", 31))
    own = {"TEMPORAL_SERVICES", "BIND_ON_IP", "POSTGRES_SEEDS", "DYNAMIC_CONFIG_FILE_PATH"}
    own |= {"PROMETHEUS_ENDPOINT", "LOG_LEVEL"}
    assert {name for name, value in ours.items() if given.get(name) != value} == own
    assert given.keys() <= ours.keys()


def test_the_dynamic_configuration_is_deploys_and_what_a_test_adds(tmp_path: Path) -> None:
    cluster(tmp_path)
    told = yaml.safe_load((tmp_path / "temporal.yaml").read_text())
    deployed = yaml.safe_load((ROOT / "deploy/temporal.yaml").read_text())
    assert told == deployed | {"some.key": [{"value": "5s"}]}


def test_the_load_balancer_has_both_frontends(tmp_path: Path) -> None:
    cluster(tmp_path)
    told = (tmp_path / "haproxy.cfg").read_text()
    assert told.startswith(BALANCER[: BALANCER.index("{")])
    assert told.count("  server frontend-") == 2


def test_a_variable_of_compose_without_its_value_is_named() -> None:
    with pytest.raises(LookupError, match=r"wants POSTGRES_PASSWORD: set it in \.env"):
        compose.read({})


def test_nothing_is_left_open_in_what_the_dashboard_asks() -> None:
    assert len(queries()) == 15
    assert not [query for query in queries() if "$" in query]


def test_each_accident_happens_once_in_a_run_of_its_full_length() -> None:
    storm = stack_storm.ACCIDENTS
    assert stack_storm.PLAN["restarts"] == len(storm)
    assert {f"{service}-1 killed" for service in SERVICES} <= {*storm}
    assert Plan(**stack_storm.PLAN).kills > len(storm), "each happens at a kill of a worker"  # type: ignore[arg-type]


def test_who_may_not_make_namespaces_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(hosts.NotHere, match="only root may"):
        hosts.look()


# ---------------------------------------------------------------- for real


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.stack", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * MINUTES, check=False)


@FOR_REAL
@pytest.mark.timeout(15 * MINUTES)
def test_conversations_go_through_the_dashboard_has_its_numbers_and_nothing_is_left() -> None:
    done = run("check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Prometheus answers 15 of the dashboard's 15 queries." in done.stdout
    assert hosts.left() == []


@FOR_REAL
@pytest.mark.timeout(15 * MINUTES)
def test_one_that_was_killed_is_removed_by_down_and_while_one_runs_there_is_no_second() -> None:
    command = [sys.executable, "-m", "tests.stack", "up"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        for line in up.stdout:
            if "Ctrl-C" in line:
                break
        second = run("check")
        assert second.returncode == 1
        assert "A stack is running" in second.stderr
        assert len(hosts.left()) == 14
        up.kill()
    assert len(hosts.left()) == 14
    assert run("down").returncode == 0
    assert hosts.left() == []
    assert not (stack.FOLDER / "postgres").exists()
