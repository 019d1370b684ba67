import asyncio
import os
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EqualsExpected

model = OpenAIChatModel("clerk", provider=OpenAIProvider(base_url=os.environ["MODEL_URL"], api_key="none"))
clerk = Agent(model, instructions="Refund what they ask for.")


@clerk.tool_plain
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} is paid"


@clerk.tool_plain
def refund(order: str) -> str:
    """Refund an order."""
    with Path(os.environ["REFUNDS"]).open("a") as file:
        file.write(f"{order}\n")
    return f"order {order} is refunded"


async def call_names(question: str) -> list[str]:
    result = await clerk.run(question)
    parts = [part for message in result.all_messages() for part in message.parts]
    return [part.tool_name for part in parts if isinstance(part, ToolCallPart)]


dataset = Dataset(
    name="orders",
    cases=[
        Case(name=f"order {number}", inputs=f"Refund order {number}.", expected_output=["look_up", "refund"])
        for number in range(20)
    ],
    evaluators=[EqualsExpected()],
)


async def main() -> None:
    report = await dataset.evaluate(call_names, progress=False, max_concurrency=16)
    failed = [case.name for case in report.cases if not all(result.value for result in case.assertions.values())]
    print(f"{len(failed)} of {len(report.cases)} cases failed")


if __name__ == "__main__":
    asyncio.run(main())
