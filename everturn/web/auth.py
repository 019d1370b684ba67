"""Authentication in front of the inbox, and the security headers on all its responses.

Without a token, the inbox is for this machine alone. A page from another site, in a browser on this machine, is refused
by three things that it can't forge: the Host header (a rebound name is not localhost), Origin with Sec-Fetch-Site, and
a content type that browsers send across origins only after a preflight request.
"""

from __future__ import annotations

import hmac
import ipaddress
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everturn.errors import InvalidSetting
from everturn.http.headers import read_media_type
from everturn.http.json_response import JsonResponse

MIN_TOKEN_CHARS: Final = 16
COOKIE_SECONDS: Final = 30 * 24 * 3600

HEADERS: Final = {
    # Trusted Types: a script that tries to turn any text into markup fails.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

# Not a redirect: a link in a mail comes from another site, and browsers then don't send a strict cookie until the next
# navigation, which has to start at this page.
_WELCOME = '<!doctype html><title>everturn</title><meta http-equiv="refresh" content="0; url=/">Signed in.'


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_token(token: str | None, *, host: str, what: str = "inbox", variable: str = "EVERTURN_WEB_TOKEN") -> None:
    """Raises InvalidSetting if the token is weak, or if there is none and other machines can reach `host`."""
    if token is None and not is_loopback(host):
        raise InvalidSetting(
            f"Other machines can reach this {what} at {host!r}, so it needs a token.",
            cure=f"Set {variable} to a secret of at least {MIN_TOKEN_CHARS} characters, such as "
            "`openssl rand -hex 24` prints; or leave --host at 127.0.0.1.",
        )
    if token is not None and (len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable()):
        raise InvalidSetting(
            f"The {what}'s token has {len(token)} characters, or some that are not printable ASCII.",
            cure=f"Use at least {MIN_TOKEN_CHARS} letters and digits, such as `openssl rand -hex 24` prints.",
        )


class Auth:
    """Passes requests on to the inbox, or refuses them: 400, 403 and 415 for other sites' pages, 401 without token."""

    def __init__(self, app: ASGIApp, *, token: str | None = None) -> None:
        self._app = app
        self._token = token
        # The cookie opens only this inbox, and does not reveal the token. Browsers share cookies between ports: the
        # cookie's name depends on the token, so two inboxes on one machine keep their cookies apart.
        self._pass = ""
        self._cookie = ""
        if token:
            self._pass = _digest_of_token(token, "pass")
            self._cookie = f"everturn_{_digest_of_token(token, 'name')[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets here: uvicorn answers for us

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope)
        answer = self._refuse_stranger(request) or self._refuse_unknown(request)
        await (answer or self._app)(scope, receive, with_headers)

    def _refuse_stranger(self, request: Request) -> Response | None:
        """The answer to a request that may come from another site's page; None for all other requests."""
        host = request.headers.get("host", "")
        if self._token is None and not is_loopback(host_name(host)):
            return _refused_response(400, f"This inbox is at localhost, not at {host[:100]!r}.")
        if not request.url.path.startswith("/api/"):
            return None
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site")
        if (origin is not None and _place_of(origin) != host) or site not in (None, "same-origin", "none"):
            return _refused_response(
                403, "Only the inbox's own page may send this request, but it comes from another site."
            )
        if request.method == "POST" and read_media_type(request.headers) != "application/json":
            return _refused_response(415, "The body has to be application/json.")
        return None

    def _refuse_unknown(self, request: Request) -> Response | None:
        """The answer to a request without the cookie or the token, or to a login link; None for all other requests."""
        if self._token is None or is_same(request.cookies.get(self._cookie, ""), self._pass):
            return None
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and is_same(bearer.strip(), self._token):
            return None
        if request.url.path == "/" and is_same(request.query_params.get("token", ""), self._token):
            welcome = HTMLResponse(_WELCOME)
            welcome.set_cookie(
                self._cookie,
                self._pass,
                max_age=COOKIE_SECONDS,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
            return welcome
        if request.url.path.startswith("/api/"):
            return _refused_response(401, "Sign in first: open the inbox with ?token=... at the end of its address.")
        return PlainTextResponse(
            "This inbox asks for a token. Open it with the token at the end of its address: /?token=...\n"
            "Whoever started `everturn web` has it, in EVERTURN_WEB_TOKEN.\n",
            status_code=401,
        )


def _refused_response(status: int, reason: str) -> Response:
    return JsonResponse({"error": reason}, status_code=status)


def _place_of(origin: str) -> str | None:
    """An Origin header without its scheme; None if it is not an address, such as `http://[::1`."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def host_name(host: str) -> str:
    """A Host header without its port."""
    if host.endswith("]") or ":" not in host:
        return host
    return host.rpartition(":")[0]


def _digest_of_token(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"everturn inbox {purpose}".encode(), sha256).hexdigest()


def is_same(given: str, wanted: str) -> bool:
    # Compared as bytes: compare_digest refuses texts with non-ASCII characters, and anybody may send those.
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def proxied_name(request: Request, header: str | None) -> str | None:
    """The name that the reverse proxy gives in this header; None if none is configured. Raises HTTPException."""
    if header is None:
        return None
    if name := request.headers.get(header, "").strip():
        return name[:200]
    raise HTTPException(403, f"The proxy in front of this inbox did not say who asks, in {header!r}.")
