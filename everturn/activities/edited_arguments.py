"""Arguments that a person put in, in place of the model's: if they do not fit, the call waits for a person again."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities.hook_runs import HookRuns, Stops
from everturn.payloads import ToolRequest
from everturn.records import ToolCall
from everturn.sizes import MAX_CAUSE_BYTES, shortened
from everturn.tools.arguments import InvalidArguments
from everturn.tools.context import ToolContext
from everturn.tools.tool import Tool


async def seen_by_hooks(hooks: HookRuns, tool: Tool, request: ToolRequest, context: ToolContext) -> ToolRequest:
    """The request with the arguments that a person put in, as hooks left them. The model's own arguments were seen by
    hooks when the call was planned. Raises ApplicationError if hooks refuse the person's."""
    if request.decision is None or request.decision.arguments is None:
        return request
    call = ToolCall(call_id=request.call_id, name=tool.name, arguments=request.arguments)
    try:
        await tool.checked(call.arguments, context)
    except InvalidArguments:
        return request  # the run says so
    try:
        verdict = await hooks.before_tool(call, tool, context)
        problem = verdict.denied or (verdict.asks if verdict.failed else None)
    except Stops as stop:
        problem = stop.text
    except ApplicationError as stall:
        problem = stall.message
    if problem:
        refuse_edit(tool.name, request, f"are not taken: {problem}")
    return request.model_copy(update={"arguments": verdict.call.arguments})


def refuse_edit(name: str, request: ToolRequest, why: str) -> None:
    """Raises ApplicationError if it was a person who put these arguments in."""
    if request.decision and request.decision.arguments is not None:
        # A person made the mistake, so a person corrects it: the call waits for a person again.
        raise ApplicationError(
            shortened(f"the edited arguments {why}", max_bytes=MAX_CAUSE_BYTES),
            {"call_id": request.call_id, "tool": name},  # the event of a local activity does not say whose it is
            type=names.INVALID_EDIT,
            non_retryable=True,
        ) from None
