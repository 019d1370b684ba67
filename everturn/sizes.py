"""All size limits: what Temporal takes, how much of it each thing that we send may have, and how we measure that.

Sizes are bytes of JSON as written, escapes included, unless a name says otherwise: a control character takes six bytes.
The parts of a payload add up to less than Temporal takes, even if each is as large as it may be
(tests/unit/test_payload_sizes.py); text/shortening.py and truncation.py make it so. The SDK would send a payload that
is too large again and again, in silence, and its conversation would stand still.

How many of something there may be is not said here, but where the thing is. The test counts as many as there may be.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from everturn.errors import Refused
from everturn.system.json_numbers import check_numbers, place_of_odd_number

# ---------------------------------------------------------------- what Temporal takes

TEMPORAL_PAYLOAD_BYTES = 2 * 1024 * 1024
TEMPORAL_MESSAGE_BYTES = 4 * 1024 * 1024
"""One gRPC message, such as all that a workflow task brings."""

TEMPORAL_BUFFERED_BYTES = 2 * 1024 * 1024
"""Signals that come while a workflow task runs. At the signal that exceeds this, the server begins the task anew."""

TEMPORAL_RUN_BYTES = 50 * 1024 * 1024
"""A run's history: the server terminates a run that has more."""

TEMPORAL_SUMMARY_BYTES = 400
"""A summary, with what says that it is JSON, and with what encryption adds."""

MAX_PAYLOAD_BYTES = TEMPORAL_PAYLOAD_BYTES // 1024**2 * 1000**2
"""Temporal's 2 MiB, less its metadata and what a codec adds: 2 MB."""

THOUSANDTH_BYTES = MAX_PAYLOAD_BYTES // 1_000
"""What small things are measured in: 2,000 bytes."""

MAX_KEY_ID_CHARS = 40
"""The id of an encryption key: each payload holds it."""

CODEC_BYTES = 160
"""What encryption adds to a payload, at most: a nonce, a tag, the key's id, and names for all of it."""

MARGIN_BYTES = MAX_PAYLOAD_BYTES // 20
"""The part of a payload that is kept for small things: ids, names, counts, reasons."""

# ---------------------------------------------------------------- what people send

MAX_INPUT_BYTES = MAX_PAYLOAD_BYTES // 5
"""One message, decision or answer. A payload has to hold some together: edited arguments come twice in a tool's input,
and a message beside what waited in a conversation that it revives."""

MAX_ANSWER_BYTES = MAX_INPUT_BYTES - MARGIN_BYTES // 5
"""The parts of an answer to a call that runs where the client is. Its other fields have the rest."""

MAX_INPUT_PARTS = 1_000
"""Of one message or answer. Ten thousand small ones take a workflow task more time than Temporal gives it."""

MAX_UNREAD_BYTES = MAX_PAYLOAD_BYTES * 25 // 2
"""A run whose history has so many takes no long messages until it has answered. Each message is written once more when
the model is shown it: both are the 50 MB of a run."""

LONG_MESSAGE_BYTES = 5 * THOUSANDTH_BYTES
"""Shorter messages are sent without that check."""

SMALL_DECISION_BYTES = 5 * THOUSANDTH_BYTES
"""A decision of up to this size is accepted even if the run is full."""

MAX_INBOX_BYTES = MAX_PAYLOAD_BYTES * 3 // 10
"""The messages that go into one model turn together, or on to the next run."""

MAX_REASON_BYTES = 2 * THOUSANDTH_BYTES
"""A person's reason and name. They are written into each call that is cut short for it, and into the outcome."""

MAX_CAUSE_BYTES = 4 * THOUSANDTH_BYTES
"""Why a conversation is stalled; the cure; and what is wrong with a reply."""

WHY_BYTES = (MAX_REASON_BYTES, MAX_REASON_BYTES // 10, MAX_REASON_BYTES // 40)
"""Why a call waits, in a status: the first number, or a smaller one if very many calls wait."""

MAX_POLICY_BYTES = 10 * THOUSANDTH_BYTES
"""All rules of a conversation: each run hands them to the next."""

MAX_RULE_CHARS = THOUSANDTH_BYTES // 2
"""Of the reason that a rule gives."""

# ---------------------------------------------------------------- a model turn

MAX_NAMED_BYTES = MAX_PAYLOAD_BYTES * 3 // 20
"""The ids of the calls whose results a delta leaves out. A reply has 2,048 calls at most, with ids of 128 bytes."""

MAX_DELTA_BYTES = MAX_PAYLOAD_BYTES - MAX_NAMED_BYTES - MARGIN_BYTES
"""The messages since the last model turn."""

INLINE_BYTES = TEMPORAL_PAYLOAD_BYTES // 1_024
"""A larger tool result is not written into the history a second time: the delta names it (decision 0003)."""

MAX_BESIDE_REPLY_BYTES = MAX_PAYLOAD_BYTES // 5
"""The plan of a reply's calls, or the output that was read from it: a reply never has both."""

MAX_GIVEN_BYTES = MAX_BESIDE_REPLY_BYTES // 2
"""The results that hooks gave of a reply's calls, together, with their plans: the other half is for other plans."""

PLAN_TEXT_BYTES = (2 * THOUSANDTH_BYTES, THOUSANDTH_BYTES // 10, THOUSANDTH_BYTES // 20)
"""The longest text in a call's plan. The first number holds, unless all is more than the above: a reply may have 512
calls. Then the next one does."""
PLAN_ARGUMENTS_BYTES = (20 * THOUSANDTH_BYTES, THOUSANDTH_BYTES * 3 // 5, THOUSANDTH_BYTES // 10)
"""The same for the arguments in a plan: it has no larger ones."""

MAX_REPLY_BYTES = MAX_PAYLOAD_BYTES - MAX_BESIDE_REPLY_BYTES - MARGIN_BYTES
"""The model's message."""

MAX_STORED_REPLY_BYTES = 16 * TEMPORAL_PAYLOAD_BYTES
"""The model's message with external storage. The conversation reads it in one workflow task, which has 2 s."""

SMALL_PART_BYTES = THOUSANDTH_BYTES
"""A smaller part of a reply that is too large stays in it whole; a larger one may become a notice of this size."""

LEAST_PART_BYTES = THOUSANDTH_BYTES // 5
"""What is left of a part that is cut: its kind, its id, and the notice."""

MAX_DETAILS_BYTES = 32 * THOUSANDTH_BYTES
"""What a provider says about a whole reply: a part of the margin."""

MAX_PROMPT_BYTES = 8 * THOUSANDTH_BYTES
"""What one turn was asked with, packed, if it was decided at run time: a part of the margin (decision 0026)."""
MAX_PROMPTS_BYTES = 3 * MAX_PROMPT_BYTES
"""All such prompts in a run's history together."""
MAX_ACTIONS_BYTES = 6 * THOUSANDTH_BYTES
"""What hooks did to a turn or a result, as its record says: a part of the margin."""
MAX_HOOK_NAME_CHARS = 64
"""Which hook it was."""
MAX_ACTION_WHY_BYTES = MAX_ACTIONS_BYTES // 40
"""The reason of an action that did not stop the answer."""
MAX_WAITS_BYTES = 15 * THOUSANDTH_BYTES
"""All waits whose spans one turn is to export, some hundred: a part of the margin. If there are more, the latest."""
MAX_SPAN_NAME_BYTES = THOUSANDTH_BYTES // 10
"""The name of whoever decided, in a span: each wait in those has one."""

# ---------------------------------------------------------------- heartbeats

MAX_STREAMED_BYTES = 16 * THOUSANDTH_BYTES
"""The end of a running reply, in a heartbeat that comes now and then, and in what is left of a cancelled turn. The
server keeps the last one beside the history, and sends it with each look at the conversation."""
RECENT_BYTES = MAX_STREAMED_BYTES // 8
"""The same in a frequent heartbeat: many times the text that comes between two of them."""

MAX_SEEN_BYTES = MAX_PAYLOAD_BYTES * 3 // 25
"""What was seen of a reply, in the command that cancels its turn. More than is sent: earlier versions took 40,000
characters, of up to six bytes."""

MAX_ADDRESS_CHARS = 300
"""Where the text is handed out over HTTP: beside it in each heartbeat, and in the input of each turn."""
MAX_TOKEN_CHARS = 100
"""What it is asked for with."""

MAX_PROGRESS_BYTES = 32 * THOUSANDTH_BYTES
"""What a tool reports of itself: each heartbeat carries it."""

MAX_PROGRESS_TEXT_BYTES = MAX_PROGRESS_BYTES // 64
"""What is shown of progress that is larger, or that JSON can't hold."""

MAX_TASK_ID_CHARS = THOUSANDTH_BYTES // 2
"""The id of a task that an MCP server has made of a call: each heartbeat carries it."""

# ---------------------------------------------------------------- tool calls

MAX_RESULT_BYTES = MAX_PAYLOAD_BYTES - MAX_INPUT_BYTES - MARGIN_BYTES
"""A result's texts, images and documents together. A person's decision comes beside them."""

MAX_RESULT_CHARS = MAX_PAYLOAD_BYTES // 10
"""The most that a model reads of one result (of a tool, a client or another agent), unless its agent says otherwise."""

MAX_ERROR_BYTES = MAX_CAUSE_BYTES // 2
"""What a model is told of an exception. A reply may have many calls that fail."""

MAX_EDIT_BYTES = 10 * THOUSANDTH_BYTES
"""What the model is told, before a result, of the arguments and the note of the person who approved the call."""

MAX_CHANGED_BYTES = 10 * THOUSANDTH_BYTES
"""The arguments of a call, if a hook makes them longer."""

MAX_LEFT_BYTES = 24 * THOUSANDTH_BYTES
"""The data that a run of a tool leaves for the run that gets a person's answer. It is in the history twice."""

MAX_QUESTION_BYTES = MAX_CAUSE_BYTES * 3 // 4
"""A tool's question to a person: it is why the call waits."""
MAX_MISFIT_BYTES = (MAX_CAUSE_BYTES - MAX_QUESTION_BYTES) // 2
"""Beside it, why an answer does not fit."""
QUESTION_KEY_CHARS = 2 * THOUSANDTH_BYTES
"""The beginning of a question, by which its answer is found again. Answers of earlier versions are kept by it."""

MAX_HANDOFF_BYTES = 8 * THOUSANDTH_BYTES
"""What one agent tells the agent that takes over."""

MAX_HANDOFF_NOTE_BYTES = 12 * THOUSANDTH_BYTES
"""The note in place of the messages that this agent is not shown."""

MAX_NOTICE_BYTES = 32 * THOUSANDTH_BYTES
"""What another workflow is told of calls that wait. One with more has no arguments, and short reasons."""
MAX_NOTICE_WHY_BYTES = THOUSANDTH_BYTES // 10

MAX_WEBHOOK_BYTES = 10 * THOUSANDTH_BYTES
"""What a webhook is sent, before its link: Standard Webhooks advises to stay below 20 kB. What is more comes without
arguments and text, and with short reasons."""
MAX_WEBHOOK_TEXT_BYTES = THOUSANDTH_BYTES // 2
"""Each text in such a message."""

RUN_BYTES = 20 * MAX_PAYLOAD_BYTES
"""Of a run's 50 MB. The rest is for what people send and the turn that follows."""

FAIR_BYTES = MAX_PAYLOAD_BYTES // 8
"""A call that would get less of a run than this waits for the running calls, which may use less than they may."""

LEAST_RESULT_BYTES = 2 * THOUSANDTH_BYTES
"""Each call gets at least this, so that its result can say something."""

MOST_LOCAL = 16
LOCAL_BYTES = 16 * THOUSANDTH_BYTES
"""Of what a workflow task brings, this is kept for each of so many calls that run within it: such a result is whole."""

TASK_BYTES = MAX_PAYLOAD_BYTES * 4 // 5
"""What a workflow task brings, with all that it starts and all that ran within it. The server writes it down together
with the signals that came meanwhile (TEMPORAL_BUFFERED_BYTES), and terminates a run if that is more than
TEMPORAL_MESSAGE_BYTES."""

# ---------------------------------------------------------------- from run to run

MAX_HISTORY_BYTES = TEMPORAL_RUN_BYTES * 4 // 25
"""A run that has more goes on as a new one at the next turn boundary: a replay reads all of it."""

MAX_PACKED_BYTES = 24 * THOUSANDTH_BYTES
"""A transcript that packs into this travels with each run; a longer one stays in the histories of the earlier runs.
What travels is written once a run, so this bounds what a run costs beyond its own events."""

MAX_HANDED_BYTES = 16 * THOUSANDTH_BYTES
"""Results that no model has seen: what is handed on is written into three events more."""

MAX_OPEN_BYTES = MAX_PAYLOAD_BYTES // 2
"""All that is handed on while calls wait for people. If it is more, they wait in the run that they began in."""

MAX_OPEN_INBOX_BYTES = MAX_OPEN_BYTES * 2 // 5
"""The inbox in that, if messages that came while calls waited have made the run full."""

MAX_UNSEEN_BYTES = MAX_PAYLOAD_BYTES // 5
"""What no model has seen, in the start of a fork or of a conversation that is revived. If it is more, it becomes a part
of the prefix, and costs the next model turn a look into the history."""

MAX_PACKED_AT_START_BYTES = MAX_PAYLOAD_BYTES // 5
"""The transcript in such a start: a new message, the inbox and what no model has seen come beside it."""

MAX_FORK_LINE_BYTES = 32 * THOUSANDTH_BYTES
"""The ids of the conversations that a fork shares its beginning with, in such a start and in its memo."""

MAX_PACKED_ALONE_BYTES = MAX_PAYLOAD_BYTES - MARGIN_BYTES
"""A transcript that is a payload by itself."""

MAX_LAST_TEXT_BYTES = 10 * THOUSANDTH_BYTES
"""What the model said last, as it is handed on."""

MAX_BEGINNING_CHARS = 80
"""The beginning of a conversation's first message, as it is handed on and as errors show it."""

MAX_KNOWN_ID_BYTES = 64
"""A message's id as it is remembered; of a longer one, a digest is. 1,000 are handed on."""

MAX_WAITING_BYTES = MAX_PAYLOAD_BYTES * 3 // 20
"""The ids of a tenant's conversations that wait for its budget: each run of the budget hands them to the next."""

# ---------------------------------------------------------------- the end, and what others see

MAX_OUTCOME_BYTES = MAX_PAYLOAD_BYTES - MARGIN_BYTES
"""An outcome's text, output and tail together."""

MAX_PAGE_BYTES = MAX_PAYLOAD_BYTES * 3 // 20
"""The messages in one answer to the `transcript` query; one that is larger comes alone."""

SUMMARY_BYTES = TEMPORAL_SUMMARY_BYTES - CODEC_BYTES
"""Of a summary as JSON. Temporal turns down the whole request or workflow task that brings more."""

MAX_ID_BYTES = 1_000
"""Of a workflow's id, and of the names of activities and task queues: Temporal's limit. A child workflow with a longer
id would fail its parent's task, again and again."""

MAX_MESSAGE_ID_CHARS = MAX_ID_BYTES // 2
"""Of a message's id, as it comes. It is remembered in MAX_KNOWN_ID_BYTES."""

MAX_FAIRNESS_KEY_BYTES = 64
"""Of a fairness key: Temporal's limit."""

MAX_ANNOUNCED_BYTES = 4 * 1_024
"""The names of agents in a worker's heartbeat: the server keeps it in memory. A worker with more sends none."""

MAX_KEYWORD_CHARS = 255
"""Of a search attribute's text: the columns of SQL databases hold so many."""

MAX_KEYWORD_BYTES = 2_000
"""Of a search attribute's text as the SDK writes it: with six bytes for each letter that is not ASCII, and twelve for a
picture. Temporal takes 2,048, and turns down the whole workflow task that brings more."""

MAX_KEYWORD_INT = 2**63 - 1

MAX_NAME_CHARS = THOUSANDTH_BYTES // 4
"""Of a model's or a tenant's name."""

MAX_METADATA_BYTES = TEMPORAL_PAYLOAD_BYTES // 512
"""What a conversation is started with beside its message: it is in the input of each model turn and each tool call."""

MAX_DEPTH = 100
"""Levels of objects and lists. JSON of 200 levels can't be read, and payloads add some levels of their own."""

# ---------------------------------------------------------------- how it is measured


def size_of(value: Any) -> int:
    """Bytes as JSON: what the value takes in a payload."""
    return len(to_json(value, inf_nan_mode="constants", fallback=str))


def check_input(what: str, value: Any) -> None:
    """Raises Refused for what a conversation would not take for its size, before it is sent."""
    depth_refusal = Refused(
        f"The {what} is nested more than {MAX_DEPTH} levels deep.", cure="Flatten it, or send it as text."
    )
    if too_deep(value):
        raise depth_refusal
    if place := place_of_odd_number(value):
        raise Refused(f"The {what} holds a number that JSON does not have: {place}.", cure="Send it as text.")
    try:
        written = to_json(value, inf_nan_mode="constants", fallback=str)
    except PydanticSerializationError as error:  # half of a surrogate pair, such as bytes of a command line become
        raise Refused(f"The {what} can't be written as UTF-8: {error}.", cure="Send text in UTF-8.") from None
    if written.count(b"{") + written.count(b"[") > MAX_DEPTH and too_deep(json.loads(written)):
        raise depth_refusal
    if (size := len(written)) > MAX_INPUT_BYTES:
        raise Refused(
            f"The {what} has {size:,} bytes of JSON; the limit is {MAX_INPUT_BYTES:,}.",
            cure="Put it where a tool can read it, and send its name or a link.",
        )


def too_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than a payload may be."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inside = [item for item in level if isinstance(item, dict | list | tuple)]
        if not inside:
            return False
        level = [inner for item in inside for inner in (item.values() if isinstance(item, dict) else item)]
    return True


def storable_json(value: Any) -> Any:
    """The value, for a record's validator. Raises ValueError for what is nested too deeply, and for a number that JSON
    does not have."""
    if too_deep(value):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return check_numbers(value)
