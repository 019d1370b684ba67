"""For tests, demos and benchmarks without a key: a scripted model behind a real HTTP server, and replays of
histories."""

from __future__ import annotations

from everturn.testing.replay import Diverged, record_history, replay_history
from everturn.testing.script import Reply, Script, call, cut, fail, garbage, say, slow
from everturn.testing.scripted_model import ScriptedModel

__all__ = [
    "Diverged",
    "Reply",
    "Script",
    "ScriptedModel",
    "call",
    "cut",
    "fail",
    "garbage",
    "record_history",
    "replay_history",
    "say",
    "slow",
]
