"""The bounds that nobody passes in, set so low that a test meets them.

A workflow is given facts and fetches none, so its bounds are constants of its code: a new one is a change that old
histories have to replay under. Those of providers and activities are constants since no user has to choose them. What
tests set of both is named here, and set nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from everturn import carryover, devserver, packed_messages
from everturn.activities import (
    agent_lookup,
    mcp_tools,
    model_turns,
    planning,
    prompt_cache_watch,
    tool_contexts,
    tool_times,
)
from everturn.batching import sending as batch_sending
from everturn.budgets import spending as budget_spending
from everturn.calls import decision_problems
from everturn.cli import completion, follow
from everturn.client import client_base, erasure, messages, missing_worker
from everturn.evaluations import collector as evaluation_collector
from everturn.evaluations import judge_activity
from everturn.evaluations import worker as evaluation_worker
from everturn.evaluations import workflow as evaluation_workflow
from everturn.heartbeats import blocked_loop, heartbeat
from everturn.history import fork_start, revival
from everturn.live import lane_writer, text_server
from everturn.lost_workers import poison_calls
from everturn.providers import background, http, json_values
from everturn.providers.rate_limits import limit_watch, rate_limiter
from everturn.storage import directory, encryption, unreadable
from everturn.temporal import temporal_errors
from everturn.tools import results, user_code
from everturn.tools.mcp import calls, limits
from everturn.ui import http as ui_http
from everturn.web import app, codec_server, connections, listing
from everturn.webhooks import delivery_attempts as webhook_attempts
from everturn.worker import drain_deadline, workflow_steps
from everturn.workflows import (
    awaited_worker,
    continue_as_new,
    history_space,
    recent_messages,
    sent_messages,
    timeouts,
    user_activity_calls,
)

Bounds = Callable[..., None]
"""`bounds(events=40)`: for as long as the test lasts, and while its histories are replayed."""

CONSTANTS: dict[str, tuple[ModuleType, str]] = {
    # What is given to a step that runs on the worker's event loop.
    "short_step_bytes": (workflow_steps, "SHORT_BYTES"),
    # How long a provider's prompt cache is taken to hold.
    "prompt_cache_seconds": (prompt_cache_watch, "KEPT_SECONDS"),
    # When a run is continued as a new one.
    "events": (continue_as_new, "MAX_EVENTS"),
    "run_seconds": (continue_as_new, "LEAST_SECONDS"),
    "history_bytes": (continue_as_new, "MAX_HISTORY_BYTES"),
    "updates": (continue_as_new, "MAX_UPDATES"),
    # What it hands on.
    "packed_bytes": (continue_as_new, "MAX_PACKED_BYTES"),
    "open_bytes": (continue_as_new, "MAX_OPEN_BYTES"),
    "handed_bytes": (continue_as_new, "MAX_HANDED_BYTES"),
    "held_chars": (recent_messages, "MAX_HELD_CHARS"),
    # What a fork or a revived conversation begins with.
    "begun_with_bytes": (revival, "MAX_PACKED_AT_START_BYTES"),
    "moved_bytes": (fork_start, "MAX_PACKED_AT_START_BYTES"),
    # When a worker says that its deps are not open yet, and how long it lets them close.
    "deps_say_seconds": (tool_contexts, "SAY_SECONDS"),
    "deps_close_seconds": (tool_contexts, "CLOSE_SECONDS"),
    # When somebody who waits is told that no worker is there.
    "retry_glance_seconds": (follow, "RETRY_GLANCE_SECONDS"),
    "silence": (missing_worker, "FIRST_LOOK_SECONDS"),
    # How often a worker with evaluators looks for answers, and how soon a failing evaluator is tried again.
    "look_pace": (evaluation_worker, "PACE"),
    "look_silence": (evaluation_collector, "SILENCE"),
    "evaluator_delay_seconds": (judge_activity, "FIRST_DELAY_SECONDS"),
    "evaluator_wait": (evaluation_workflow, "FIRST_WAIT"),
    # How soon a webhook's message is tried again.
    "webhook_delay": (webhook_attempts, "FIRST_DELAY"),
    "webhook_turn_delay": (webhook_attempts, "LONGEST_TURN_DELAY"),
    # What it takes in.
    "remembered_ids": (carryover, "REMEMBERED_IDS"),
    "inbox_bytes": (sent_messages, "MAX_INBOX_BYTES"),
    "unread_bytes": (messages, "MAX_UNREAD_BYTES"),
    "refused_edits": (decision_problems, "MOST_REFUSED_EDITS"),
    # How many calls of a reply are run.
    "planned_calls": (planning, "MAX_PLANNED_CALLS"),
    # How much a history may hold.
    "run_bytes": (history_space, "RUN_BYTES"),
    "task_bytes": (history_space, "TASK_BYTES"),
    "fair_bytes": (history_space, "FAIR_BYTES"),
    "least_bytes": (history_space, "LEAST_RESULT_BYTES"),
    # How long it looks for a worker that has the agent, without a word and at all.
    "quietly": (agent_lookup, "QUIETLY"),
    "taken_within": (timeouts, "TAKEN_WITHIN"),
    "started_within": (timeouts, "STARTED_WITHIN"),
    "lost_activity_tries": (user_activity_calls, "MOST_TRIES"),
    "host_patience": (awaited_worker, "PATIENCE"),
    # Between two tries to find a worker that has a run-once tool: which worker gets one is chance.
    "longest_host_delay": (awaited_worker, "LONGEST_DELAY_SECONDS"),
    # How much of a provider's answer is read, and how long its end is waited for.
    "broken_seconds": (background, "BROKEN_SECONDS"),
    "poll_seconds": (background, "POLL_SECONDS"),
    # How often a worker counts those with whom it shares a known limit, and for how long so often.
    "limit_look_seconds": (limit_watch, "LOOK_SECONDS"),
    "limit_often_seconds": (limit_watch, "OFTEN_SECONDS"),
    # How soon a tenant's budget is told, and told again, and what has not been told.
    "budget_pace_seconds": (budget_spending, "PACE_SECONDS"),
    "budget_again_seconds": (budget_spending, "AGAIN_SECONDS"),
    "budget_answer_seconds": (budget_spending, "ANSWER_SECONDS"),
    "budget_late_seconds": (budget_spending, "LATE_SECONDS"),
    # How long a batch whose creation was not answered is looked for, and how soon again.
    "batch_settle_seconds": (batch_sending, "SETTLE_SECONDS"),
    "batch_look_seconds": (batch_sending, "LOOK_SECONDS"),
    # How soon one that was sent is asked about.
    "batch_poll_seconds": (batch_sending, "FIRST_POLL_SECONDS"),
    # The part of a hold after which a call is let through.
    "first_look": (rate_limiter, "FIRST_LOOK"),
    "reply_bytes": (http, "MAX_HTTP_REPLY_BYTES"),
    "error_bytes": (http, "MAX_HTTP_ERROR_BYTES"),
    "json_values": (json_values, "MAX_JSON_VALUES"),
    "end_seconds": (http, "_END_SECONDS"),
    # How much of what is stored is read.
    "packed_objects": (packed_messages, "MAX_OBJECTS"),
    "file_bytes": (directory, "MAX_FILE_BYTES"),
    "decompressed_bytes": (encryption, "MAX_DECOMPRESSED_BYTES"),
    "ask_again_seconds": (encryption, "ASK_AGAIN_SECONDS"),
    "codec_body_bytes": (codec_server, "MAX_CODEC_BODY_BYTES"),
    "output_bytes": (model_turns, "MAX_BESIDE_REPLY_BYTES"),
    # How long what users wrote may take.
    "quick_seconds": (user_code, "QUICK_SECONDS"),
    "clean_up_seconds": (user_code, "CLEAN_UP_SECONDS"),
    "error_seconds": (results, "ERROR_SECONDS"),
    "stand_in_seconds": (blocked_loop, "LONGEST_STAND_IN_SECONDS"),
    # How quick a tool has to be to run within a workflow task, and how long it may hold one up.
    "local_seconds": (tool_times, "QUICK_SECONDS"),
    "hurried": (timeouts, "HURRIED"),
    # How long a worker is silent until it is lost, and how often what it was lost in is tried.
    "heartbeat_timeout": (timeouts, "HEARTBEAT_TIMEOUT"),
    "lane_again_seconds": (lane_writer, "RETRY_SECONDS"),
    # How long a reader of text over HTTP takes nothing, or asks for nothing, until it is let go.
    "live_look_seconds": (text_server, "LOOK_SECONDS"),
    "live_stalled_seconds": (text_server, "STALLED_SECONDS"),
    "live_head_seconds": (text_server, "HEAD_SECONDS"),
    "beat_seconds": (heartbeat, "INTERVAL_SECONDS"),
    # How soon a worker beats whose turn was cancelled by a conversation that it has itself.
    "hurried_seconds": (heartbeat, "HURRIED_SECONDS"),
    "lost_tries": (poison_calls, "MOST_OF_AN_ACTIVITY"),
    "lost_tries_of_a_tool": (poison_calls, "MOST_OF_A_TOOL"),
    "lost_tries_of_a_plan": (poison_calls, "MOST_OF_A_PLAN"),
    "unreadable_tries": (unreadable, "TRIES"),
    # How long a run-once call waits for an MCP server that is away, before it tries to connect again.
    "mcp_listing_wait_seconds": (mcp_tools, "FIRST_WAIT_SECONDS"),
    "mcp_call_wait_seconds": (calls, "FIRST_WAIT_SECONDS"),
    # How long a worker that was told to end has for what is stuck.
    "grace_seconds": (drain_deadline, "GRACE_SECONDS"),
    # How long a shell waits for the ids that it completes.
    "completion_seconds": (completion, "PATIENCE_SECONDS"),
    # Which ports the servers of this process of xdist take.
    "ports": (devserver, "_PORTS"),
    # How much one message of theirs may be.
    "mcp_message_bytes": (limits, "MAX_MESSAGE_BYTES"),
    "mcp_values": (limits, "MAX_MESSAGE_VALUES"),
    # How long a worker's word is waited for.
    "answer_seconds": (temporal_errors, "WORKER_TIMEOUT_SECONDS"),
    "task_timeout": (client_base, "TASK_TIMEOUT"),
    # How long what is erased is watched until it is gone.
    "gone_seconds": (erasure, "GONE_SECONDS"),
    # How often a page of another front end is told that its stream is alive.
    "page_beat_seconds": (ui_http, "BEAT_SECONDS"),
    # How long a request to a server of ours may take to arrive, and how many connections it holds.
    "request_head_seconds": (connections, "HEAD_SECONDS"),
    "request_body_seconds": (connections, "BODY_SECONDS"),
    "connections": (connections, "MOST_CONNECTIONS"),
    # How many pages an inbox serves.
    "pages": (app, "MAX_STREAMS"),
    # How many conversations of a state it shows at first.
    "listed": (listing, "NEWEST"),
}


AS_THEY_ARE = {name: getattr(*where) for name, where in CONSTANTS.items()}


def put_back() -> list[str]:
    """Puts back those that a test left as it had set them, and names them: all that come after it in the same process
    would have them."""
    left = [name for name, where in CONSTANTS.items() if getattr(*where) != AS_THEY_ARE[name]]
    for name in left:
        setattr(*CONSTANTS[name], AS_THEY_ARE[name])
    return left


def settable(monkeypatch: pytest.MonkeyPatch) -> Bounds:
    def bounds(**values: Any) -> None:
        for name, value in values.items():
            monkeypatch.setattr(*CONSTANTS[name], value)

    return bounds


@contextmanager
def lowered(**values: Any) -> Iterator[None]:
    """For a part of a test, or where there is none."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        settable(monkeypatch)(**values)
        yield


def set_for_good(**values: Any) -> None:
    """In a process of its own, or for all tests of this one."""
    for name, value in values.items():
        setattr(*CONSTANTS[name], value)
        AS_THEY_ARE[name] = value


def as_code(**values: Any) -> str:
    """The lines that set them in a program without the tests' own modules, to stand below its imports. Each value as
    Python writes it: `0.5`, or `int(os.environ["MOST"])`."""
    lines = []
    for name, value in values.items():
        module, constant = CONSTANTS[name]
        lines += [f"import {module.__name__}", f"{module.__name__}.{constant} = {value}"]
    return "\n".join(lines)
