"""Vendors' SDKs: every member of their unions, decoded, sent back, and held against their own types."""

from __future__ import annotations

from peers.bench import Bench

MINUTES = 15


async def run(bench: Bench) -> None:
    python = bench.python("openai==3.52.0", "anthropic==2.11.0", "google-genai==3.4.0")
    for package in ("openai", "anthropic", "google-genai"):
        bench.row(package, bench.version(python, package), "installed")
