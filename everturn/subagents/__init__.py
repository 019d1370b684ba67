"""Agents that work for a conversation as its tools, each in a conversation of its own: decision 0009."""
