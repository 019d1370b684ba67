"""Every string that gets frozen into histories: only ever added to, for a renamed one breaks running conversations."""

from __future__ import annotations

from typing import Final

CONVERSATION: Final = "Conversation"
"""The workflow type."""

TASK_QUEUE: Final = "everturn"

CHECK_DECISION: Final = "check_decision"
"""The activity that asks an agent's `approvers` whether a person may decide."""

KEEP_TRANSCRIPT: Final = "keep_transcript"
"""The activity that brings the messages of earlier runs into this one before their histories are deleted."""

EXTEND_PREFIX: Final = "extend_prefix"
"""The activity that makes results too large to be handed to the next run a part of the prefix, without a model turn."""

CALL_MODEL: Final = "call_model"
"""The activity of a model turn. A tool's activity has the tool's own name, so no tool may be called this."""

WORKER_LOST: Final = "WorkerLost"
"""The error type of an activity whose workers were lost while it ran."""

NOT_ALONE: Final = "NotAlone"
"""The error type of one that was lost again and again, and is handed back while another such call runs."""

NO_THREAD: Final = "NoThread"
"""The error type of a tool's activity that did not begin: its worker's threads are stuck in calls that never ended."""
CUT_SHORT: Final = "CutShort"
"""The error type of a run-once tool's activity that an operator paused or reset while it ran."""
NOT_HOSTED: Final = "NotHosted"
"""The error type of an activity that a worker handed back: it does not host the agent, or the agent lacks the tool."""

# Signals, and updates of the same names.
MESSAGE: Final = "message"
APPROVE: Final = "approve"
DENY: Final = "deny"
ANSWER: Final = "answer"
PAUSE: Final = "pause"
RESUME: Final = "resume"
CANCEL_TURN: Final = "cancel_turn"
CLOSE: Final = "close"
DECISIONS: Final = (APPROVE, DENY, ANSWER)
"""What a person says to a call that waits."""

WITHDRAW: Final = "withdraw"
"""The signal by which a client takes back an update that no worker has taken yet."""

WITHDRAWN: Final = "Withdrawn"
"""Error type of an update that was taken back before it was taken."""

RAN_BEFORE_RESET: Final = "RanBeforeReset"
"""Error type of a tool's activity: it had run in what a reset undid."""

NOT_CHECKED: Final = "NotChecked"
"""Error type of a tool's activity: it was not begun, for nobody can see whether it ran before a reset."""

REMINDER: Final = "reminder of "
"""How the summary of the timer begins that reminds of a call before it expires; the call_id follows."""

THE_CLOCK: Final = "the clock"
"""Who decided, where a call expired."""

EVERY_CALL: Final = "*"
"""As a call_id: every call that waits now."""

# Queries.
STATUS: Final = "status"
TRANSCRIPT: Final = "transcript"

# Search attributes.
EVERTURN_STATUS: Final = "EverturnStatus"
EVERTURN_AGENT: Final = "EverturnAgent"
EVERTURN_MODEL: Final = "EverturnModel"
EVERTURN_TOKENS: Final = "EverturnTokens"
EVERTURN_COST_USD: Final = "EverturnCostUsd"

SEARCH_ATTRIBUTES: Final = {
    EVERTURN_STATUS: "Keyword",
    EVERTURN_AGENT: "Keyword",
    EVERTURN_MODEL: "Keyword",
    EVERTURN_TOKENS: "Int",
    EVERTURN_COST_USD: "Double",
}
"""With their types, as the Temporal CLI writes them."""

RESERVED_TOOL_NAMES: Final = frozenset({CALL_MODEL, CHECK_DECISION, KEEP_TRANSCRIPT, EXTEND_PREFIX})

NEVER_BEGUN: Final = frozenset({"NotFoundError", "InvalidAgent", "TooLate", NO_THREAD, NOT_CHECKED})
"""Error types of a tool's activity whose tool was not even begun: of the SDK where a worker has no activity of that
name, and of ours."""
