"""A codec server: Temporal's Web UI and command line ask it to decrypt payloads, and to encrypt them.

Temporal's protocol: POST to .../encode or .../decode, with Payloads as JSON in and out; .../download is a decode that
also fetches from external storage. The keys stay here, but decoded data goes to whoever asks, so they must be known.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from google.protobuf import json_format
from pydantic_core import from_json
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import DataConverter

from everturn.errors import InvalidSetting
from everturn.http.json_response import JsonResponse
from everturn.logs import get_logger
from everturn.web.auth import COOKIE_SECONDS, host_name, is_loopback, is_same

MAX_CODEC_BODY_BYTES: Final = 128 * 1024 * 1024
"""Large, for the Web UI sends the payloads of a whole page of a history at once."""

ORIGINS: Final = ("http://localhost:8233", "http://127.0.0.1:8233")
"""The addresses of the dev server's Web UI."""

_ENDPOINTS: Final = ("encode", "decode", "download")

_CORS: Final = {
    "access-control-allow-credentials": "true",
    "access-control-allow-headers": "authorization, authorization-extras, content-type, x-namespace",
    "access-control-allow-methods": "POST",
    "access-control-allow-private-network": "true",
    "access-control-max-age": "600",
}

_log = get_logger("everturn.codec")


class CodecServer:
    """`app` is the ASGI app to serve. `origins`: the Web UIs whose pages may ask. `token`: the token that all who ask
    have to send; without one, only this machine can ask. Raises InvalidSetting if the converter has no codec."""

    def __init__(self, converter: DataConverter, *, origins: Sequence[str] = ORIGINS, token: str | None = None) -> None:
        if converter.payload_codec is None:
            raise InvalidSetting(
                "The codec server has no codec.",
                cure="Set EVERTURN_ENCRYPTION_KEYS, EVERTURN_ENCRYPTION_COMMAND or "
                "EVERTURN_DATA_CONVERTER, to the same value as on the workers.",
            )
        self._converter = converter
        self._codec = converter.payload_codec
        self._origins = frozenset(origin.rstrip("/") for origin in origins)
        self._token = token
        # Browsers share cookies between ports: the token in the name keeps two servers on one machine apart.
        self._cookie = ""
        self._pass = ""
        if token:
            self._cookie = f"everturn_codec_{_digest_of_token(token, 'name')[:8]}"
            self._pass = _digest_of_token(token, "pass")
        self.app: ASGIApp = self

    def end_streams(self) -> None:
        """Does nothing: this server has no streams."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # uvicorn needs no lifespan here, and answers everything else itself
        request = Request(scope, receive)
        origin = request.headers.get("origin", "")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update({"cache-control": "no-store", "x-content-type-options": "nosniff", "vary": "Origin"})
                if origin in self._origins:
                    headers["access-control-allow-origin"] = origin
                    headers.update(_CORS)
            await send(message)

        await (await self._answer_request(request, origin))(scope, receive, with_headers)

    async def _answer_request(self, request: Request, origin: str) -> Response:
        if self._token is None and not is_loopback(host_name(request.headers.get("host", ""))):
            return _refused_response(400, "This codec server is at localhost, not at another name.")
        if origin and origin not in self._origins:
            return _refused_response(
                403, f"The page at {origin[:200]!r} is not allowed. To allow it: `everturn codec --origin`."
            )
        if request.method == "OPTIONS":
            return Response(status_code=204)
        if request.method == "GET" and request.url.path == "/":
            return self._front_page(request)
        endpoint = request.url.path.rpartition("/")[2]
        if request.method != "POST" or endpoint not in _ENDPOINTS:
            return _refused_response(404, "Post to /encode, /decode or /download.")
        if not self._is_known(request):
            return _refused_response(
                401, "Send the token, as `Authorization: Bearer ...`; or open this server with /?token=..."
            )
        try:
            payloads = await _payloads_of(request)
        except ClientDisconnect:
            return _refused_response(400, "The page has left before it had said all.")
        except ValueError as error:
            return _refused_response(400, f"The body is not JSON of Payloads: {str(error)[:200]}")
        try:
            if endpoint == "encode":
                return _payloads_response(await self._codec.encode(payloads))
            keep = endpoint == "decode" and request.query_params.get("preserveStorageRefs") == "true"
            return _payloads_response(await self._decode_payloads(payloads, keep_references=keep))
        except Exception as error:  # noqa: BLE001 - codecs and storages may raise anything
            _log.warning("codec.failed", endpoint=endpoint, error=str(error))
            return _refused_response(400, str(error)[:1000])

    # ------------------------------------------------------------ decoding

    async def _decode_payloads(self, payloads: Sequence[Payload], *, keep_references: bool) -> list[Payload]:
        """A payload that can't be decoded stays as it is, so that it does not hide a whole page of others. Raises if
        none can be decoded."""
        decoded: list[Payload] = []
        first_error: Exception | None = None
        failed = 0
        for payload in payloads:
            if keep_references and _is_stored(payload):
                decoded.append(payload)
                continue
            try:
                decoded.append(await self._decode_payload(payload))
            except Exception as error:  # noqa: BLE001 - as above
                first_error = first_error or error
                failed += 1
                decoded.append(payload)
        if first_error and failed == len(payloads):
            raise first_error
        if first_error:
            _log.warning("codec.not_decoded", payloads=failed, error=str(first_error))
        return decoded

    async def _decode_payload(self, payload: Payload) -> Payload:
        converter = self._converter
        payloads = [payload]
        if _is_stored(payload):
            payloads = await converter._decode_reference_payload_sequence(payloads)
            payloads = await converter._external_retrieve_payload_sequence(payloads)
        return (await converter._decode_payload_sequence(payloads))[0]

    # ------------------------------------------------------------ who asks

    def _is_known(self, request: Request) -> bool:
        if self._token is None or is_same(request.cookies.get(self._cookie, ""), self._pass):
            return True
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and is_same(bearer.strip(), self._token)

    def _front_page(self, request: Request) -> Response:
        """Signs a browser in with a cookie, for Temporal's Web UI there: it has no token to send over plain HTTP."""
        if self._token is None:
            return PlainTextResponse("A codec server for Temporal: post to /decode and /encode.\n")
        if not is_same(request.query_params.get("token", ""), self._token):
            return PlainTextResponse("This codec server asks for a token. Open it with /?token=...\n", status_code=401)
        secure = request.url.scheme == "https"
        welcome = HTMLResponse(
            "<!doctype html><title>everturn codec</title>Signed in: the Web UI can now decode payloads."
        )
        welcome.set_cookie(
            self._cookie,
            self._pass,
            max_age=COOKIE_SECONDS,
            httponly=True,
            # Two ports of one name are the same site. Under another name, the Web UI's requests are cross-site.
            samesite="none" if secure else "lax",
            secure=secure,
        )
        return welcome


def _is_stored(payload: Payload) -> bool:
    return bool(payload.external_payloads)


async def _payloads_of(request: Request) -> list[Payload]:
    """Raises ValueError."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_CODEC_BODY_BYTES:
            raise ValueError(f"it has more than {MAX_CODEC_BODY_BYTES:,} bytes")
    value = from_json(bytes(body))
    if not isinstance(value, dict):
        raise ValueError(f"it is a {type(value).__name__}")
    try:
        return [*json_format.ParseDict(value, Payloads(), ignore_unknown_fields=True).payloads]
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None


def _payloads_response(payloads: Sequence[Payload]) -> Response:
    written: dict[str, Any] = json_format.MessageToDict(Payloads(payloads=payloads))
    return JsonResponse(written)


def _refused_response(status: int, reason: str) -> Response:
    return JsonResponse({"error": reason, "message": reason}, status_code=status)


def _digest_of_token(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"everturn codec {purpose}".encode(), sha256).hexdigest()
