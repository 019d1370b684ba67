"""Talking to conversations from outside: start, send, decide, follow, list."""
