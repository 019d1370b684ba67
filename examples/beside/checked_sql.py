"""An answer that a database is asked about, and that the model writes again if it will not do."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import BaseModel, ValidationInfo, field_validator

from everturn import Agent, Client, Worker


class Database:
    def explain(self, query: str) -> None:
        if "last_active" not in query:
            raise LookupError("column is not known; users has last_active")


@asynccontextmanager
async def open_database() -> AsyncIterator[Database]:
    yield Database()


class Success(BaseModel):
    sql_query: str

    @field_validator("sql_query")
    @classmethod
    def can_be_run(cls, query: str, info: ValidationInfo) -> str:
        if info.context is not None:  # on the worker
            try:
                info.context.deps.explain(query)
            except LookupError as error:
                raise ValueError(f"Invalid query: {error}") from error
        return query


class InvalidRequest(BaseModel):
    error_message: str


sql = Agent(
    "sql",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    output=Success | InvalidRequest,
    instructions="Generate PostgreSQL flavored SQL queries based on user input.",
)


async def main() -> None:
    client = await Client.connect()
    async with Worker(client, agents=[sql], deps=open_database):
        outcome = await client.run(sql, "get me users who were last active yesterday.")
        print(outcome.value, "-", outcome.turns, "turns")


if __name__ == "__main__":
    asyncio.run(main())
