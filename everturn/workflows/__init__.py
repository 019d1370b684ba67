"""Deterministic code: a conversation's loop, the calls that wait for people, what the Web UI shows."""
