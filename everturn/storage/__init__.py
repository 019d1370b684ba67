"""Payloads and results outside the history: the data converter, external storage, artifacts."""
