"""For tests, demos and benchmarks without a key: a scripted model behind a real HTTP server."""

from __future__ import annotations

from everturn.testing.script import Reply, Script, call, cut, fail, garbage, say, slow
from everturn.testing.server import ScriptedModel

__all__ = ["Reply", "Script", "ScriptedModel", "call", "cut", "fail", "garbage", "say", "slow"]
