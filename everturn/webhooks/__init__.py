"""Webhooks: agents' conversations say over HTTP that they wait for a person, that they stalled, and how they ended."""
