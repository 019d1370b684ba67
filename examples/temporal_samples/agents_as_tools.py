"""Agents as the tools of another: Temporal's sample `openai_agents/agent_patterns`, its agents-as-tools workflow.

python examples/temporal_samples/agents_as_tools.py "Translate to Spanish, French and Italian: Good morning!"
"""

import asyncio
import os
import sys

from everturn import Agent, Client, Worker

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")


def translator(language: str) -> Agent:
    return Agent(
        f"translate_to_{language.lower()}",
        model=MODEL,
        instructions=f"You translate the user's message to {language}",
        description=f"Translate the user's message to {language}",
    )


orchestrator = Agent(
    "orchestrator",
    model=MODEL,
    instructions="You are a translation agent. You never translate on your own, you always use the provided tools.",
    tools=[translator("Spanish"), translator("French"), translator("Italian")],
)
synthesizer = Agent(
    "synthesizer",
    model=MODEL,
    instructions="You inspect translations, correct them if needed, and produce a final concatenated response.",
)


async def main(message: str) -> None:
    client = await Client.connect()
    async with Worker(client, agents=[orchestrator, synthesizer]):
        translated = await client.run(orchestrator, message)
        print((await client.run(synthesizer, f"{message}\n\n{translated.text}")).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
