"""A real MCP server that wants OAuth tokens, and the authorization server that gives them out, in one process:
`python -m tests.support.mcp_guarded FOLDER PORT`. FOLDER/log has the tokens that were asked for; a token that is in
FOLDER/revoked is worth nothing any more."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from starlette.requests import Request
from starlette.responses import JSONResponse

FOLDER, PORT = Path(sys.argv[1]), int(sys.argv[2])
HERE = f"http://127.0.0.1:{PORT}"


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        revoked = FOLDER / "revoked"
        if revoked.exists() and token in revoked.read_text():
            return None
        return AccessToken(token=token, client_id="clerk", scopes=["tools"]) if token.startswith("token-") else None


settings: dict[str, Any] = {
    "issuer_url": HERE,
    "resource_server_url": f"{HERE}/mcp",
    "required_scopes": ["tools"],
    "validate_token_resource": False,
}
safe = MCPServer("safe", token_verifier=Verifier(), auth=AuthSettings(**settings))


@safe.tool(annotations=ToolAnnotations(read_only_hint=True))
def open_safe() -> str:
    """Opens the safe."""
    return "42 coins"


@safe.custom_route("/.well-known/oauth-authorization-server", methods=["GET"])
async def metadata(request: Request) -> JSONResponse:
    return JSONResponse(
        {
            "issuer": HERE,
            "authorization_endpoint": f"{HERE}/authorize",
            "token_endpoint": f"{HERE}/token",
            "response_types_supported": ["code"],
            "grant_types_supported": ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }
    )


@safe.custom_route("/token", methods=["POST"])
async def token(request: Request) -> JSONResponse:
    form = await request.form()
    said = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
    if said != "clerk:s3cret" or form["grant_type"] != "client_credentials":
        return JSONResponse({"error": "invalid_client"}, status_code=401)
    log = FOLDER / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.write_text("\n".join([*lines, f"token-{len(lines) + 1} {form.get('scope')}"]))
    return JSONResponse({"access_token": f"token-{len(lines) + 1}", "token_type": "Bearer", "expires_in": 3600})


if __name__ == "__main__":
    safe.run("streamable-http", port=PORT)
