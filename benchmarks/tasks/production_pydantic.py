import asyncio
import os
from dataclasses import dataclass

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_evals.evaluators import Evaluator, EvaluatorContext
from pydantic_evals.online import OnlineEvaluator, wait_for_evaluations
from pydantic_evals.online_capability import OnlineEvaluation

ANSWERS = 200
provider = OpenAIProvider(base_url=os.environ["MODEL_URL"], api_key="none")
judge = Agent(OpenAIChatModel("judge", provider=provider))


@dataclass
class Polite(Evaluator):
    async def evaluate(self, ctx: EvaluatorContext) -> bool:
        result = await judge.run(f"Is this polite? {ctx.output}")
        return result.output == "yes"


online = OnlineEvaluation(evaluators=[OnlineEvaluator(evaluator=Polite(), sample_rate=0.05)])
helper = Agent(OpenAIChatModel("helper", provider=provider), name="helper", capabilities=[online])


async def main() -> None:
    slots = asyncio.Semaphore(100)

    async def ask(number: int) -> None:
        async with slots:
            await helper.run(f"Question {number}")

    await asyncio.gather(*map(ask, range(ANSWERS)))
    print("answered", flush=True)
    await wait_for_evaluations()


if __name__ == "__main__":
    asyncio.run(main())
