"""The process that hosts agents: the worker, its deployment and metrics, the check before a deploy."""
