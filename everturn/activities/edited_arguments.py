"""Arguments that a person put in, in place of the model's: if they do not fit, the call waits for a person again."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities.hook_runs import HookRuns, Stops
from everturn.payloads import ToolRequest
from everturn.policy import same_json
from everturn.records import ToolCall, ToolResult
from everturn.sizes import MAX_CAUSE_BYTES, MAX_LEFT_BYTES, shortened, size_of
from everturn.tools.arguments import InvalidArguments
from everturn.tools.context import ToolContext
from everturn.tools.tool import Tool


async def show_to_hooks(hooks: HookRuns, tool: Tool, request: ToolRequest, context: ToolContext) -> ToolResult | None:
    """Shows hooks the arguments that a person put in; they have seen the model's own when the call was planned. What
    runs is what the person approved: raises ApplicationError if hooks refuse it or change it, and then the person is
    asked about what they made of it. If a hook gives the result, that is returned, and nothing is to run."""
    if request.as_shown or request.decision is None or request.decision.arguments is None:
        return None
    call = ToolCall(call_id=request.call_id, name=tool.name, arguments=request.arguments)
    try:
        await tool.checked(call.arguments, context)
    except InvalidArguments:
        return None  # the run says so
    proposed: dict[str, JsonValue] | None = None
    given: ToolResult | None = None
    try:
        verdict = await hooks.before_tool(call, tool, context)
        given = verdict.result
        problem = verdict.denied
        if not problem and verdict.failed:
            problem = verdict.asks
        if not problem and not same_json(verdict.call.arguments, request.arguments):
            problem = (
                f"{', '.join(verdict.changed_by)} would change them. To run the call as it is shown now, approve it"
            )
            proposed = verdict.call.arguments
    except Stops as stop:
        problem = stop.text
    except ApplicationError as stall:
        problem = stall.message
    if not problem and request.given and given is None:
        problem = (
            "a hook gave the call's result, and gives none for them. Approve the call as it is, deny it or answer it"
        )
    if problem:
        refuse_edit(tool.name, request, f"are not taken: {problem}", proposed=proposed)
    return given


def refuse_edit(name: str, request: ToolRequest, problem: str, *, proposed: dict[str, JsonValue] | None = None) -> None:
    """Raises ApplicationError if it was a person who put these arguments in. `proposed`: those that hooks would
    take."""
    if request.decision and request.decision.arguments is not None:
        # A person made the mistake, so a person corrects it: the call waits for a person again.
        raise ApplicationError(
            shortened(f"the edited arguments {problem}", max_bytes=MAX_CAUSE_BYTES),
            # The event of a local activity does not say whose it is.
            {"call_id": request.call_id, "tool": name, **_proposal_details(proposed)},
            type=names.INVALID_EDIT,
            non_retryable=True,
        ) from None


def _proposal_details(arguments: dict[str, JsonValue] | None) -> dict[str, Any]:
    """Too large a one is not carried along: the person has to put in others."""
    if arguments is None or size_of(arguments) > MAX_LEFT_BYTES:
        return {}
    return {"proposed": arguments}
