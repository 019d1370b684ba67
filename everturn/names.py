"""Every string that gets frozen into histories. Only add names: a renamed one breaks running conversations."""

from __future__ import annotations

from typing import Final, Literal

CONVERSATION: Final = "Conversation"
"""The workflow type."""

VisibilityLevel = Literal["full", "minimal"]
"""How much a conversation shows beside its payloads: see Settings.visibility."""

TASK_QUEUE: Final = "everturn"

MODELS_QUEUE: Final = "-models"
TOOLS_QUEUE: Final = "-tools"
"""What the names of the task queues of model turns and of tools end with, if workers with these roles poll them."""

TENANT_BUDGET: Final = "TenantBudget"
"""The workflow type of a tenant's budget. Its id is BUDGET_OF and the tenant, or a digest if payloads are encoded."""

BUDGET_OF: Final = "everturn-budget:"

RERUN: Final = "rerun:"
"""How the ids of reruns begin: conversations that no list of conversations has."""

EVALUATION: Final = "Evaluation"
"""The workflow type of one evaluator's judgement of one answer. Its id is EVALUATION_OF and what it judges."""

EVALUATION_OF: Final = "everturn-evaluation:"

EVALUATION_COLLECTOR: Final = "EvaluationCollector"
"""The workflow type that looks for answers to judge. Its id is EVALUATIONS_AT and the conversations' task queue."""

EVALUATIONS_AT: Final = "everturn-evaluations:"

EVALUATIONS_QUEUE: Final = "-evaluations"
"""What the name of the task queue of evaluations ends with. Workers with evaluators poll it."""

LOOK_FOR_ANSWERS: Final = "look_for_answers"
"""The activity that finds new answers in the index, and starts the evaluations of those that are sampled."""

JUDGE_ANSWER: Final = "judge_answer"
"""The activity in which an evaluator judges an answer."""

EVALUATED: Final = "evaluation"
"""In an evaluation's memo: what came of it."""

WEBHOOK: Final = "Webhook"
"""The workflow type of a message's delivery to a webhook. Its id is WEBHOOK_OF, the conversation's id, and its own."""

WEBHOOK_OF: Final = "everturn-webhook:"

BEGIN_WEBHOOK: Final = "begin_webhook"
"""The local activity by which a conversation begins such a delivery."""

SEND_WEBHOOK: Final = "send_webhook"
"""A delivery's activity: each try sends the message once."""

WEBHOOK_FAILED: Final = "WebhookFailed"
"""The error type of a try that the receiver did not take."""

SET_BUDGET: Final = "set_budget"
"""The signal that sets a tenant's budget, or takes it away."""

COUNT_SPENDING: Final = "count_spending"
"""The update by which workers ask a tenant's budget, and tell it what was spent."""

BUDGET_MOVES: Final = "budget_moves"
"""In the details of a budget's termination: the budget goes on, on another task queue."""

BUDGET: Final = "budget"
"""The query of a tenant's budget: what it is, and what was spent of it."""

BATCHES: Final = "BatchCollector"
"""The workflow type that gathers turns for a provider's batches. Its id is BATCHES_OF, the provider, and a digest of
the task queue, the address and the key."""

BATCHES_OF: Final = "everturn-batches:"

JOIN_BATCH: Final = "join_batch"
"""The signal by which a conversation's turn joins the next batch."""

LEAVE_BATCH: Final = "leave_batch"
"""The signal by which a conversation says that it does not wait any more."""

BATCH: Final = "batch"
"""The signal by which a conversation learns what became of its turn in a batch."""

BATCHES_QUERY: Final = "batches"
"""The query of a collector: what it gathers, and the batches that are with the provider."""

SEND_BATCH: Final = "send_turn_batch"
FOLLOW_BATCH: Final = "follow_turn_batch"
CANCEL_BATCH: Final = "cancel_turn_batch"
"""A collector's activities."""

BESIDE_CONVERSATIONS: Final = frozenset({BATCHES, WEBHOOK})
"""Workflows of ours on the workers of conversations, all of whose activities are ours, too."""

ON_WORKERS: Final = frozenset({CONVERSATION, TENANT_BUDGET, *BESIDE_CONVERSATIONS})
"""All of ours that those workers run."""

RESERVED_IDS: Final = (BUDGET_OF, EVALUATION_OF, EVALUATIONS_AT, BATCHES_OF, WEBHOOK_OF, RERUN)
"""How the ids of our own workflows begin that are no conversations, or in no list of them: nobody else may start a
conversation with such an id."""

BATCHED: Final = "Batched"
"""The error type of a model turn that is to wait for a batch."""

BATCH_FAILED: Final = "BatchFailed"
"""The error type of a model turn whose batch brought no reply."""

BATCH_RUNS: Final = "BatchRuns"
"""The error type of a try that found a batch still running."""

OVER_BUDGET: Final = "OverBudget"
"""The error type of a model turn that its tenant's budget does not allow."""

BUDGET_SILENT: Final = "BudgetSilent"
"""The error type of a model turn whose tenant's budget did not answer."""

CHECK_DECISION: Final = "check_decision"
"""The activity that asks an agent's `approvers` whether a person may decide."""

KEEP_TRANSCRIPT: Final = "keep_transcript"
"""The activity that brings the messages of earlier runs into this one before their histories are deleted."""

JOIN_CONVERSATION: Final = "join_conversation"
"""The activity by which a workflow of a user's gets the outcome of a conversation that has been begun already under the
id that it chose."""

GOES_ON: Final = "GoesOn"
"""The error type of a try of that activity: the conversation is not over yet."""

EXTEND_PREFIX: Final = "extend_prefix"
"""The activity that makes results too large to be handed to the next run a part of the prefix, without a model turn."""

EXPORT_SPANS: Final = "export_spans"
"""The local activity that exports the spans that are left when a conversation ends without a last reply."""

CHECK_CALL: Final = "check_call"
"""The activity that runs before a user's own activity. It checks the arguments that a person put in, and looks for
what a reset undid."""

CHECK_RESULT: Final = "check_result"
"""The activity in which an agent's `after_tool` hooks see a result that no tool on a worker gave: a client's, a
sub-agent's, a person's, or that of a user's own activity."""

CALL_HEADER: Final = "everturn-call"
"""The header of a user's own activity, or of a Nexus operation, that says which call it serves. Activities of ours say
so in their input."""

IDEMPOTENCY_HEADER: Final = "everturn-idempotency-key"
"""The header of a Nexus operation that is the same for every start of the call, and for no other call."""

ACTIVITY_OF_CALL: Final = "call:"
"""How the id of a user's own activity begins; the call_id follows. It is the same for every try."""

CALL_MODEL: Final = "call_model"
"""The activity of a model turn. A tool's activity has the tool's own name, so no tool may be called this."""

WORKER_LOST: Final = "WorkerLost"
"""The error type of an activity whose workers were lost while it ran."""

NEVER_STARTED: Final = "NeverStarted"
"""The error type of an activity whose worker was lost before it began: it has taken no effect."""

NOT_ALONE: Final = "NotAlone"
"""The error type of a call that was lost again and again, and is handed back while another such call runs."""

NO_THREAD: Final = "NoThread"
"""The error type of a tool's activity that did not begin: its worker's threads are stuck in calls that never ended."""
CUT_SHORT: Final = "CutShort"
"""The error type of a run-once tool's activity that an operator paused or reset while it ran."""
NOT_HOSTED: Final = "NotHosted"
"""The error type of an activity that a worker handed back: it does not host the agent, or the agent lacks the tool."""

NOT_TAKEN: Final = "NotTaken"
"""The error type of a user's own activity that no worker of its task queue took in time."""

INVALID_EDIT: Final = "InvalidEdit"
"""The error type of a tool's activity: the arguments that a person put in do not fit the tool's schema."""

ASKS: Final = "Asks"
"""The error type of a tool's activity that has a question for a person: it is run again with the answer."""

OUTCOME_UNKNOWN: Final = "OutcomeUnknown"
"""The error type of a run-once tool's activity that lost what ran it in the middle, such as an MCP server."""

NOT_LISTED: Final = "ToolsNotListed"
"""The error type of an activity that waits for an MCP server to say which tools it has."""

NOT_PREPARED: Final = "NotPrepared"
"""The error type of an activity whose agent's own functions (`instructions=`, `prepare_tools=`) failed."""
NEEDS_APPROVAL: Final = "NeedsApproval"
"""The error type of a tool's activity that wants a person's approval: once it has that, it is run again."""

HOOK_STALLED: Final = "HookStalled"
FILTER_FAILED: Final = "FilterFailed"
"""The error type of a model turn that a hook stalled, or whose hook failed."""

UNREADABLE_RESULT: Final = "UnreadableResult"
"""In the place of an error's type: a call ended, and its outcome can't be read."""

TOO_LATE: Final = "TooLate"
"""The error type of a tool's activity that did not begin: it was given to another worker meanwhile."""

TIMED_OUT: Final = "TimedOut"
"""The error type of a tool that ran for longer than its timeout."""

WORKER_SHUTDOWN: Final = "WorkerShutdown"
"""The error type of an activity whose worker was told to stop: another one takes over at once."""

MODEL_NOT_ASKED: Final = "ModelNotAsked"
"""The error type of a model turn whose request could not be written."""

REPLY_NOT_PLANNED: Final = "ReplyNotPlanned"
"""The error type of a model turn whose reply was paid for, but which the conversation can't go on with."""

INVALID_START: Final = "InvalidStart"
"""The error type of a conversation whose input makes no sense."""

REFUSED: Final = "Refused"
"""The error type of an update that the conversation did not take."""

INVALID_PAYLOAD: Final = "InvalidPayload"
"""The error type of a payload that is not of the expected type."""

PAYLOAD_NOT_TO_BE_HAD: Final = "PayloadNotToBeHad"
"""The error type of a payload that its storage does not have, or that the codec can't decode."""

PAYLOAD_TOO_LARGE: Final = "PayloadTooLarge"
"""The error type of something that is too large to be sent."""

NO_ACTIVITY: Final = "NotFoundError"
"""The error type of the SDK's own, if a worker has no activity of that name."""

NO_AGENT: Final = "InvalidAgent"
"""The error type of an activity that did not begin, in versions before NOT_HOSTED."""

# Signals, and updates of the same names.
MESSAGE: Final = "message"
APPROVE: Final = "approve"
DENY: Final = "deny"
ANSWER: Final = "answer"
PAUSE: Final = "pause"
RESUME: Final = "resume"
CANCEL_TURN: Final = "cancel_turn"
CLOSE: Final = "close"
SET_POLICY: Final = "set_policy"
INHERIT_POLICY: Final = "inherit_policy"
"""A conversation sends it to those of the agents that it has asked, when its rules change."""
DECISIONS: Final = (APPROVE, DENY, ANSWER)
"""What a person says to a call that waits."""

WITHDRAW: Final = "withdraw"
"""The signal by which a client takes back an update that no worker has taken yet."""

WITHDRAWN: Final = "Withdrawn"
"""Error type of an update that was taken back before it was taken."""

RAN_BEFORE_RESET: Final = "RanBeforeReset"
"""Error type of a tool's activity: the call had already run in what a reset undid."""

NOT_CHECKED: Final = "NotChecked"
"""Error type of a tool's activity: it was not begun, for nobody can see whether it ran before a reset, or in what a
restored database has lost."""

MAY_HAVE_RUN: Final = "MayHaveRun"
"""Error type of a tool's activity: it may have run in what a restored database has lost."""

REMINDER: Final = "reminder of "
EXPIRY: Final = "expiry of "
"""How the summary of the timer begins that reminds of a call before it expires; the call_id follows."""

NOT_BEGUN: Final = "nobody has begun "
"""How the summary of the timer begins after which a conversation says that it waits for a Nexus operation's handler;
the call_id follows."""

THE_CLOCK: Final = "the clock"
"""Who decided, if a call expired."""

MCP_IDEMPOTENCY_KEY: Final = "everturn/idempotencyKey"
"""In the `_meta` of an MCP call, to servers and to ours: the same for every try of it, which does its work once."""
MCP_IDEMPOTENT_WITH_KEY: Final = "everturn/idempotentWithKey"
"""In the `_meta` of an MCP server's tool: calls with the same key take effect once. MCP's `idempotentHint` says that of
any two equal calls."""

EVERY_CALL: Final = "*"
"""As a call_id: every call that waits now."""

# Queries.
STATUS: Final = "status"
TRANSCRIPT: Final = "transcript"

PLUGIN: Final = "everturn"
"""The plugin of a worker: in its heartbeats, the key of the agents that it hosts."""

PLUGIN_ROLES: Final = "roles"
"""There, the key of the worker's roles, if it does not have all."""

# Search attributes.
EVERTURN_STATUS: Final = "EverturnStatus"
EVERTURN_AGENT: Final = "EverturnAgent"
EVERTURN_MODEL: Final = "EverturnModel"
EVERTURN_TOKENS: Final = "EverturnTokens"
EVERTURN_COST_USD: Final = "EverturnCostUsd"
EVERTURN_METADATA: Final = "EverturnMetadata"
EVERTURN_EVALUATOR: Final = "EverturnEvaluator"
EVERTURN_SCORE: Final = "EverturnScore"
EVERTURN_LABEL: Final = "EverturnLabel"

TOO_DEEP: Final = "everturn_too_deep"
"""In a call's `extra`: its arguments were nested too deeply to be kept."""

TOO_LARGE: Final = "everturn_too_large"
"""In a call's `extra`: how many bytes it had, if its arguments were too many to be kept."""

WORKERS_LOST: Final = "everturn_workers_lost"
"""In a result's `extra`: its call was given up after so many workers were lost with it."""

FORKED_FROM: Final = "forked_from"
"""In a fork's memo: the id of the conversation that it shares its beginning with."""

FORK_LINE: Final = "fork_line"
"""In a fork's memo: the ids of all conversations that it shares its beginning with, the nearest first."""

SEARCH_ATTRIBUTES: Final = {
    EVERTURN_STATUS: "Keyword",
    EVERTURN_AGENT: "Keyword",
    EVERTURN_MODEL: "Keyword",
    EVERTURN_TOKENS: "Int",
    EVERTURN_COST_USD: "Double",
}
"""With their types, as the Temporal CLI writes them."""

SEARCHABLE: Final = {EVERTURN_METADATA: "KeywordList"}
"""For conversations whose metadata can be searched for: everything else goes without it."""

EVALUATIONS_SEARCHABLE: Final = {EVERTURN_EVALUATOR: "Keyword", EVERTURN_SCORE: "Double", EVERTURN_LABEL: "Keyword"}
"""For evaluations, which can be searched for by them."""

ALL_SEARCH_ATTRIBUTES: Final = SEARCH_ATTRIBUTES | SEARCHABLE | EVALUATIONS_SEARCHABLE

RESERVED_TOOL_NAMES: Final = frozenset(
    (
        *(CALL_MODEL, CHECK_CALL, CHECK_DECISION, CHECK_RESULT, KEEP_TRANSCRIPT),
        *(EXTEND_PREFIX, EXPORT_SPANS, JOIN_CONVERSATION),
        *(SEND_BATCH, FOLLOW_BATCH, CANCEL_BATCH),
        *(BEGIN_WEBHOOK, SEND_WEBHOOK),
    )
)


def versioned(name: str, version: str | None) -> str:
    """How conversations ask for a version of an agent."""
    return f"{name}@{version}" if version else name


def unversioned(agent: str) -> str:
    """The name alone."""
    return agent.partition("@")[0]


NEVER_BEGUN: Final = frozenset(
    {
        *(NO_ACTIVITY, NO_AGENT, NOT_HOSTED, NOT_TAKEN, NEVER_STARTED, TOO_LATE, NO_THREAD, NOT_CHECKED, NOT_LISTED),
        *(NOT_PREPARED,),
        *(INVALID_PAYLOAD, PAYLOAD_NOT_TO_BE_HAD),
    }
)
"""Error types of a tool's activity whose tool was not even begun. Those of payloads are about its input."""
