"""`McpServer`: which MCP server an agent's tools come from, and what running them means."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import PurePath
from string import Template
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from everturn.agent_settings import Setting
from everturn.errors import InvalidTool
from everturn.tools.context import ToolContext
from everturn.tools.tool import DEFAULT_PATIENCE, DEFAULT_TIMEOUT, Effect
from everturn.validation import durations

_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,31}")


class McpTool(Setting):
    """Settings of one tool, which replace those of its server: `overrides={"search": McpTool(effect="read")}`."""

    _error = InvalidTool

    effect: Effect | None = None
    needs_approval: Any = None
    """True, False, or a predicate of the arguments, as `@tool` takes it."""
    name: str | None = None
    """The tool's name for the model, without the prefix."""
    description: str | None = None
    timeout: timedelta | None = None
    patience: timedelta | None = None

    _durations = field_validator("timeout", "patience", mode="before")(durations.checked)

    @field_validator("needs_approval")
    @classmethod
    def _yes_no_or_asked(cls, value: Any) -> Any:
        if value is None or isinstance(value, bool) or callable(value):
            return value
        raise ValueError("write True, False, or a function of the dict of arguments")


class McpOAuth(Setting):
    """OAuth from machine to machine (client credentials): the worker gets a token of its own, and another one when that
    is over. `McpServer(url=..., oauth=McpOAuth(client_id="...", client_secret_env="SHOP_SECRET", issuer="https://..."))`.

    The server says where its authorization server is (RFC 9728), and the secret goes to `issuer` only. For people's
    tokens, see `McpServer.auth`.
    """

    _error = InvalidTool

    client_id: str
    client_secret_env: str
    """The name of the worker's variable that holds the secret."""
    issuer: str
    """The authorization server's issuer, as in its metadata."""
    scope: str | None = None
    """Scopes, separated by spaces. None: those that the server asks for."""


class McpServer(Setting):
    """An MCP server. The agent has its tools: `Agent(tools=[McpServer(command=["npx", "-y", "..."])])`.

    Workers list the tools when they start, and again if the server says that they changed or `refresh` is over.
    Each call is an activity with the tool's name. A tool with `readOnlyHint` has the effect `read`,
    one with `idempotentHint` is `idempotent`, and any other runs `once`; one with `destructiveHint` needs approval.
    `overrides` changes this, by the server's names. Needs the extra `mcp`. Raises InvalidTool.
    """

    _error = InvalidTool

    command: tuple[str, ...] = ()
    """A program that the worker starts and speaks to over its standard input and output."""
    url: str = ""
    """Or the address of a running server, over streamable HTTP."""
    name: str = ""
    """The name in logs and errors. Default: made from the command or the address."""
    env: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Environment variables of the program, besides PATH, HOME and similar ones. It sees nothing else of the worker's
    environment."""
    pass_env: tuple[str, ...] = ()
    """Names of the worker's variables that the program gets, such as a key's."""
    cwd: str | None = None
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Of each request."""
    headers_env: Mapping[str, str] = Field(default_factory=dict)
    """Headers with secrets: each by the name of the worker's variable that holds it, or as a text with variables:
    {"Authorization": "Bearer $GITHUB_TOKEN"}."""
    oauth: McpOAuth | None = None
    """The worker gets a token from an authorization server."""
    auth: Callable[[], Any] | None = None
    """A function that makes an `httpx2.Auth` for a connection, such as the SDK's `OAuthClientProvider` with a
    `TokenStorage` of yours: it refreshes what a person once allowed."""
    prefix: str = ""
    """Put before each tool's name, followed by _."""
    allow: tuple[str, ...] | None = None
    """Only these tools, by the server's names. None: all of them."""
    deny: tuple[str, ...] = ()
    """All tools except these."""
    overrides: Mapping[str, McpTool] = Field(default_factory=dict)
    meta: Callable[[ToolContext], Mapping[str, Any]] | None = None
    """Data for the server in the `_meta` of each call: a quick function of the call's ToolContext, such
    as `lambda context: {"tenant": context.tenant}`."""
    timeout: timedelta = DEFAULT_TIMEOUT
    """Of one try of a call."""
    patience: timedelta = DEFAULT_PATIENCE
    """While the server is away, how long a call is retried and a turn waits for its tools."""
    start_timeout: timedelta = timedelta(seconds=30)
    """How long the server may take to start and to answer the first request."""
    refresh: timedelta = timedelta(minutes=5)
    """How long a list of tools is trusted, if the server does not say that it changed."""
    optional: bool = False
    """If the server is away, turns don't wait for it: the model is asked without its tools."""
    protocol: Literal["auto", "legacy"] = "auto"
    """`legacy`: the protocol with a handshake, of before 2026. Servers that speak both may ask questions in this one
    only."""

    _durations = field_validator("timeout", "patience", "start_timeout", "refresh", mode="before")(durations.checked)

    @field_validator("command", "allow", "deny", "pass_env", mode="before")
    @classmethod
    def _a_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"write a list, such as {value.split()!r}")
        return tuple(map(str, value)) if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _one_place(self) -> McpServer:
        if bool(self.command) == bool(self.url):
            raise ValueError("write either command=[...] or url='https://...'")
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError("url has to begin with https:// or http://")
        if self.url and (self.env or self.pass_env or self.cwd):
            raise ValueError("env, pass_env and cwd belong to a command, but this server has a url")
        if self.command and (self.headers or self.headers_env or self.oauth or self.auth):
            raise ValueError("headers, headers_env, oauth and auth belong to a url, but this server has a command")
        if self.oauth and self.auth:
            raise ValueError("write either oauth or auth")
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise ValueError("prefix takes 1 to 32 letters, digits, _ and -, and begins with a letter or _")
        if self.patience < self.timeout:
            raise ValueError(f"patience={self.patience} is less than timeout={self.timeout} for one try")
        return self

    @property
    def label(self) -> str:
        """Its name, or what is plain of the command or the address. Without what may be a key."""
        if self.name:
            return self.name
        if self.url:
            return urlsplit(self.url).hostname or "mcp"
        plain = [word for word in self.command if not word.startswith("-")]
        if not plain:
            return PurePath(self.command[0]).name or "mcp"
        return PurePath(plain[min(1, len(plain) - 1)]).name or "mcp"

    @property
    def place(self) -> tuple[Any, ...]:
        """What a connection depends on: servers that are alike in it share one."""
        mappings = (self.env, self.headers, self.headers_env)
        return (
            self.command,
            self.url,
            self.cwd,
            self.pass_env,
            self.protocol,
            self.oauth,
            self.auth,
            *(tuple(sorted(mapping.items())) for mapping in mappings),
        )

    def environment(self) -> dict[str, str]:
        """Of the program. Raises InvalidTool for a variable that this worker lacks."""
        return {**{name: self._read_variable(name) for name in self.pass_env}, **self.env}

    def all_headers(self) -> dict[str, str]:
        """Of the requests, with their secrets. Raises InvalidTool for a variable that this worker lacks."""
        secret = {
            header: Template(text).substitute(_Variables(self)) if "$" in text else self._read_variable(text)
            for header, text in self.headers_env.items()
        }
        return {**self.headers, **secret}

    def all_auth(self) -> Any:
        """An `httpx2.Auth` for a connection; None for none. Raises InvalidTool for a variable that this worker lacks,
        and for what `auth` raises."""
        if self.oauth:
            from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

            return ClientCredentialsOAuthProvider(
                self.url,
                _Tokens(),
                client_id=self.oauth.client_id,
                client_secret=self._read_variable(self.oauth.client_secret_env),
                scope=self.oauth.scope,
                issuer=self.oauth.issuer,
            )
        try:
            if not self.auth:
                return None
            return self.auth()
        except Exception as error:  # noqa: BLE001 - it is the user's function
            raise InvalidTool(
                f"auth of MCP server {self.label!r} failed: {type(error).__name__}: {error}", cure="Mend it."
            ) from None

    def _read_variable(self, name: str) -> str:
        if name in os.environ:
            return os.environ[name]
        raise InvalidTool(
            f"MCP server {self.label!r} needs the environment variable {name}, which is not set on this worker.",
            cure=f"Set {name} where the worker runs, and restart it.",
        )


class _Tokens:
    """The SDK's TokenStorage, of one connection: a machine can always have another token."""

    _tokens: Any = None
    _client: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        self._client = client_info


class _Variables(dict[str, str]):
    def __init__(self, server: McpServer) -> None:
        super().__init__()
        self._server = server

    def __missing__(self, name: str) -> str:
        return self._server._read_variable(name)
