"""Other people's front ends on durable conversations: `ai_sdk` speaks the UI message stream of Vercel's AI SDK, and
`ag_ui` speaks AG-UI. Both are ASGI apps, to be mounted in an application of your own.

    async with Worker(client, agents=[clerk]):
        app.mount("/api/chat", ui.ai_sdk(client, agent="clerk", authorize=whose_chat))

They need `everturn[web]`.
"""

from everturn.ui.visitors import Authorize, Visitor, anybody

try:
    from everturn.ui.ag_ui_app import ag_ui
    from everturn.ui.ai_sdk_app import ai_sdk
except ImportError as error:
    if error.name is None or error.name.split(".", maxsplit=1)[0] != "starlette":
        raise
    from everturn.errors import InvalidSetting
    from everturn.system import extras

    raise InvalidSetting("everturn.ui needs starlette, which is not installed.", cure=extras.install("web")) from None

__all__ = ["Authorize", "Visitor", "ag_ui", "ai_sdk", "anybody"]
