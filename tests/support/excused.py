"""Where the package names what no workflow may do, beside workflow code or in it, and why that is all right there."""

from __future__ import annotations

NOT_CALLED = {
    "everturn:__getattr__": "for who writes everturn.NAME; our own modules name each other's",
    "everturn.logs:_processors": "only by workflow_log",
    "everturn.logs:configure": "by the command line and the worker process, as they begin",
    "everturn.logs:core_logs": "by the worker process, as it begins",
    "everturn.logs:forward_core_logs": "by the worker process, as it begins",
    "everturn.logs:get_logger": "only by workflow_log",
    "everturn:__dir__": "for who asks what everturn has",
    "everturn.logs:is_news": "by the worker's log, of what Temporal's SDK writes there",
    "everturn.logs:_AtFirstUse.__getattr__": "by what logs: of workflow code only workflow_log, which binds its facts",
    "everturn.logs:_no_rich": "only by configure",
    "everturn.logs:_plain_logger": "only by workflow_log",
    "everturn.records:ToolCall.parse": "makes up ids, when a vendor's reply is read: by activities and formats",
    "everturn.storage.data_converter:configured_converter": "by clients, before there is a worker",
    "everturn.storage.data_converter:named_converter": "only by configured_converter",
    "everturn.storage.data_converter:with_storage": "by clients, before there is a worker",
}
"""Functions that workflow code has beside it and never calls (and none is called in any replay)."""

HARMLESS = {
    "everturn:_loaded": "imports a module; from where, changes nothing in it",
    "everturn:_sandboxed": "asks who imports everturn",
    "everturn.system.gc_pauses:paused": "only by _loaded, and what is collected changes nothing",
    "everturn.logs:workflow_log": "is silent in a replay, and nothing depends on it",
    "everturn.records:Outcome.__getattr__": "pydantic's own, for what is not there; only the error's words are ours",
    "everturn.records:Record.__pydantic_init_subclass__": "sets up a class as that is made, before there is any record",
    "everturn.records:Record._without_defaults": "looks at the record's own fields only",
    "everturn.workflows.activity_results:ActivityResults.read": "patched() records the answer, and a replay goes by it",
    "everturn.workflows.cancellation:let_results_arrive": "sleep(0) waits for no clock: the loop's next round",
    "everturn.workflows.message_dispatch:Handlers._find_lost": "patched() records the answer, and a replay goes by it",
    "everturn.workflows.start_input:_is_unreadable": "patched() records the answer, and a replay goes by it",
}
"""Functions that workflows do call, and why what they name changes no command."""
