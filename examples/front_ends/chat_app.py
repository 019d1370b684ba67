"""Two doors to the same agent: /api/chat/ for Vercel's AI SDK, /ag-ui/ for AG-UI. It keeps nothing.

uvicorn chat_app:app --app-dir examples/front_ends --timeout-graceful-shutdown 5
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request

from everturn import Client, ui


def whose(request: Request, chat_id: str) -> ui.Visitor | None:
    """Who asks is yours to check: here, a proxy in front says it in a header."""
    user = request.headers.get("x-user")
    return ui.Visitor(name=user, metadata={"user_id": user}) if user else None


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    client = await Client.connect()
    app.mount("/api/chat", ui.ai_sdk(client, agent="clerk", authorize=whose))
    app.mount("/ag-ui", ui.ag_ui(client, agent="clerk", authorize=whose))
    yield


app = Starlette(lifespan=lifespan)
