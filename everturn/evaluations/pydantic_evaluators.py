"""Evaluators of pydantic-evals, given an answer as they want it. The package is used only if one of its evaluators is
there, who has imported it."""

from __future__ import annotations

import copy
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache, partial
from typing import Any

from everturn.evaluations.answers import AnsweredCall, JudgedAnswer
from everturn.evaluations.spending import current_spending
from everturn.records import ToolCall, Usage

_PACKAGE = "pydantic_evals.evaluators"

_TRACE = 1
"""All spans of an answer are of one trace, whichever: evaluators look at their tree."""


def is_evaluator(value: object) -> bool:
    module = sys.modules.get(_PACKAGE)
    return module is not None and isinstance(value, module.Evaluator)


def call_of(evaluator: Any, answer: JudgedAnswer) -> Callable[[], Any]:
    """A function that judges the answer: async if the evaluator is, and else sync."""
    counted = _with_counted_model(evaluator)
    context = context_of(answer)
    if inspect.iscoroutinefunction(evaluator.evaluate):
        return partial(counted.evaluate_async, context)
    return partial(counted.evaluate_sync, context)


def value_and_reason(returned: Any) -> tuple[Any, str]:
    """Of the package's own record of both; of anything else, the value without a reason."""
    module = sys.modules.get(_PACKAGE)
    if module is not None and isinstance(returned, module.EvaluationReason):
        return returned.value, returned.reason or ""
    return returned, ""


def context_of(answer: JudgedAnswer) -> Any:
    """An EvaluatorContext. Its span tree has the spans that the package's evaluators of tool calls look for, made from
    the conversation's history: so they need no tracing."""
    from pydantic_evals.evaluators import EvaluatorContext
    from pydantic_evals.otel.span_tree import SpanTree

    tree = SpanTree()
    tree.add_spans(list(_spans_of(answer)))
    output = answer.text if answer.output is None else answer.output
    return EvaluatorContext(
        name=answer.conversation_id,
        inputs=answer.input,
        metadata={**answer.metadata, "tenant": answer.tenant, "agent": answer.agent},
        expected_output=None,
        output=output,
        duration=answer.seconds,
        _span_tree=tree,
        attributes={"conversation_id": answer.conversation_id, "turn": answer.turn, "agent": answer.agent},
        metrics=_metrics_of(answer),
    )


def _metrics_of(answer: JudgedAnswer) -> dict[str, int | float]:
    usage = answer.usage
    metrics: dict[str, int | float] = {
        "requests": answer.turns,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
    }
    if answer.cost_usd is not None:
        metrics["cost"] = answer.cost_usd
    return metrics


def _spans_of(answer: JudgedAnswer) -> Iterator[Any]:
    from pydantic_evals.otel.span_tree import SpanNode

    def make_span(number: int, name: str, attributes: dict[str, Any], **more: Any) -> Any:
        times = {"start_timestamp": answer.started_at, "end_timestamp": answer.finished_at, **more}
        parent: dict[str, Any] = {"trace_id": _TRACE, "span_id": number, "parent_span_id": 1 if number > 1 else None}
        return SpanNode(name=name, attributes=attributes, **parent, **times)

    yield make_span(1, f"invoke_agent {answer.agent_name}", {"gen_ai.agent.name": answer.agent_name})
    model = answer.model.partition(":")[2]
    for turn in range(answer.turns):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        yield make_span(
            2 + turn, f"chat {model}", attributes, start_timestamp=answer.started_at + timedelta(0, 0, turn)
        )
    ran = [call for call in answer.calls if call.started_at]
    for number, call in enumerate(ran, 2 + answer.turns):
        yield make_span(number, f"execute_tool {call.name}", call_attributes(call.call), **_course_of(call))


def call_attributes(call: ToolCall) -> dict[str, str]:
    """Of a call's span, as the package's evaluators of tool calls read them."""
    return {
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.call_id,
        "gen_ai.tool.call.arguments": json.dumps(call.arguments, ensure_ascii=False),
    }


def _course_of(call: AnsweredCall) -> dict[str, Any]:
    """When it ran, and whether it failed."""
    status = "error" if call.result and call.result.is_error else "unset"
    return {
        "start_timestamp": call.started_at,
        "end_timestamp": call.finished_at or call.started_at,
        "status": status,
    }


# ---------------------------------------------------------------- what its judges cost


def _with_counted_model(evaluator: Any) -> Any:
    """A copy of an evaluator that asks a model, whose tokens are counted."""
    if not hasattr(evaluator, "model"):
        return evaluator
    from pydantic_evals.evaluators import llm_as_a_judge

    model = evaluator.model or getattr(llm_as_a_judge, "_default_model", None)
    if model is None:
        return evaluator
    counted = copy.copy(evaluator)
    counted.model = _counting_model()(model)
    return counted


@cache
def _counting_model() -> Any:
    from pydantic_ai.models.wrapper import WrapperModel

    class CountingModel(WrapperModel):
        async def request(self, *parameters: Any, **options: Any) -> Any:
            response = await super().request(*parameters, **options)
            if spending := current_spending():
                spending.add_usage(_usage_of(response.usage), _cost_of(response))
            return response

    return CountingModel


def _usage_of(usage: Any) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def _cost_of(response: Any) -> float | None:
    """None if the price is not known."""
    try:
        return float(response.cost().total_price)
    except (LookupError, AssertionError):  # as the package says it
        return None
