"""Whether Prometheus sees everything, and answers what the dashboard asks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.stack.compose import ROOT

POLL_SECONDS = 1.0
INTERVAL = "1m"
"""What Grafana would put into the place of $__rate_interval."""


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("query", query=query)["result"]
        return found

    def down(self) -> list[str]:
        """The programs that it can't read."""
        return [one["scrapeUrl"] for one in self._get("targets")["activeTargets"] if one["health"] != "up"]

    def unanswered(self) -> dict[str, str]:
        """By their panel's title: the dashboard's queries without a number."""
        return {query: title for query, title in queries().items() if not self.ask(query)}

    def _get(self, what: str, **parameters: str) -> Any:
        with urlopen(f"{self._url}/api/v1/{what}?{urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]


def queries() -> dict[str, str]:
    """What the dashboard asks, as Grafana would fill it in for all agents, and the panel that shows it."""
    dashboard = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    return {
        target["expr"].replace("$__rate_interval", INTERVAL).replace("$agent", ".*"): panel["title"]
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }


def until_empty(look: Callable[[], Any], seconds: float) -> Any:
    """What `look` still finds at the end of this time, or as soon as it finds nothing."""
    end = time.monotonic() + seconds
    while (found := look()) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
    return found
