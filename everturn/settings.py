"""What the environment says of everturn: the EVERTURN_ variables."""

from __future__ import annotations

import difflib
import os
from functools import lru_cache
from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import AwareDatetime, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from everturn import names
from everturn.errors import InvalidSetting
from everturn.sizes import MAX_ADDRESS_CHARS
from everturn.text.utf8 import is_utf8

PREFIX: Final = "EVERTURN_"

S = TypeVar("S", bound="Settings")


class Settings(BaseSettings):
    """The EVERTURN_ variables. `Settings.load()` reads them, and raises InvalidSetting."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    task_queue: str = names.TASK_QUEUE
    roles: str | None = None
    """What a worker does: `workflows`, `models`, `tools`, with commas between. What those with `workflows` leave out is
    on task queues of its own. None: everything, on one queue."""
    agents: Annotated[tuple[str, ...], NoDecode] = ()
    """`module:agent` or paths of Python files: with commas between them in the environment."""
    log: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    artifacts: str | None = None
    """Where workers keep tool results that are too large: a directory, or a URL for fsspec."""
    storage: str | None = None
    """Where large payloads go instead of the history: a directory, s3://bucket or gs://bucket."""
    data_converter: str | None = None
    """`module:name` or `path.py:name` of a Temporal data converter or payload codec, such as one of your own that
    encrypts."""
    encryption_keys: SecretStr | None = None
    """`id:key`, each key in base64, with commas between: the first encrypts, all decrypt. Switches encryption on."""
    encryption_command: str | None = None
    """A command that prints the keys, as in EVERTURN_ENCRYPTION_KEYS; it is run without a shell."""
    encryption_compression: Literal["none", "zstd"] = "none"
    """Whether payloads are made smaller before they are encrypted."""
    visibility: names.VisibilityLevel = "full"
    """What conversations that are started here show beside their payloads, in the Web UI and as search attributes.
    `minimal`: their state, the number of the turn and the names of tools."""
    codec_token: SecretStr | None = None
    """What `everturn codec` knows its visitors by."""
    cached_conversations: Annotated[int, Field(ge=0)] = 1000
    """How many conversations a worker keeps in memory between their steps."""
    drain_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 100.0
    """How long a worker that is told to stop lets running model turns and tools go on, before it hands them over. Most
    model turns take less; and docker-compose.yml, which gives it 120 s in all, leaves 20 to hand over and to close."""
    max_prefix_mb: Annotated[int, Field(ge=0)] = 256
    """What a worker's memory of transcripts takes at most."""
    heartbeats: Literal["quick", "thrifty"] | None = None
    """How often a worker sends heartbeats; None: thrifty on Temporal Cloud, which bills each one, else quick."""
    stream_seconds: Annotated[float | None, Field(ge=0.05, le=1.5)] = None
    """How often a running model turn sends more text to those who follow it. None: every 0.2 s, if heartbeats are
    quick; else with each heartbeat."""
    local_tools: Literal["auto", "given"] = "given"
    """Which tools run within the workflow task of their conversation: those with local=True. With `auto`, for agents
    that do not say, also `read` tools whose last runs took at most 0.2 s."""
    live: SecretStr | None = None
    """How the text of a turn that somebody follows gets there: `heartbeats`, `http` (straight from the worker), or the
    address of a Redis server. The same on workers and clients; it may hold a password."""
    live_listen: Annotated[str, Field(pattern=r"^[^\s/]+:\d{1,5}$")] = "127.0.0.1:0"
    """host:port at which a worker hands out text over HTTP; port 0: any free one."""
    live_address: Annotated[str | None, Field(pattern=r"^https?://[^\s/@?#]+/?$", max_length=MAX_ADDRESS_CHARS)] = None
    """The URL at which clients reach `live_listen`; None: http:// and its host and port."""
    tenant_weights: str = ""
    """Which share tenants get of busy workers, such as `acme=4,free=0.5`; 1 for those that are not named."""
    tenant_budgets: str = ""
    """What tenants may use, such as `acme=tokens:1000000+usd-month:50,*=conversations:20`: tokens and dollars a day, a
    month or in all, and conversations at work at once; `*` is for those that are not named. It holds until somebody
    sets another one."""
    index_tenants: bool = True
    """Whether conversations are found by their tenant: its name is then plain text in Temporal's index. Without effect
    if payloads are encoded, or with `visibility` minimal: then no name goes there."""
    tenants_in_metrics: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many tenants have a label of their own in a worker's metrics: the first ones that it meets. The others share
    `other`."""
    rate_limits: str = ""
    """Providers' limits that are known, such as `openai:rpm=500+tpm=200000,anthropic:rpm=50`: requests and tokens a
    minute, of all workers of the task queue together."""
    batch_seconds: Annotated[float, Field(ge=0.1, le=86_400, allow_inf_nan=False)] = 60.0
    """How long turns with batch=True are gathered before their batch is sent."""
    batch_turns: Annotated[int, Field(ge=1, le=1000)] = 500
    """How many turns a batch has at most: with so many, it is sent at once."""
    restored_at: AwareDatetime | None = None
    """After the server's database was restored from a backup: a moment between the backup and the start of the restored
    server, in ISO 8601 with its time zone. `once` calls that may have run in what was lost then wait for a person."""
    metrics: Annotated[str | None, Field(pattern=r"^[^\s/]+:\d{1,5}$")] = None
    """host:port of a worker's Prometheus endpoint."""
    traces: Literal["on", "content"] | None = None
    """Whether a worker exports traces by OpenTelemetry, whose own variables (OTEL_EXPORTER_OTLP_ENDPOINT ...) say where
    to; `content`: with what is said."""
    web_token: SecretStr | None = None
    """What `everturn web` knows its visitors by."""
    mcp_token: SecretStr | None = None
    """What `everturn mcp --http` knows its callers by: the bearer token of their requests."""
    mcp_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """The names, or `name:port`, at which callers reach `everturn mcp --http`, besides this machine's own: with commas
    between. Without any, every name if there is a token, and else none."""

    deployment: str | None = None
    """A worker's deployment, for Temporal's worker versioning."""
    build_id: str | None = None
    """Which version of the code a worker runs."""
    versioning: Literal["auto_upgrade", "pinned"] = "auto_upgrade"
    """What becomes of running conversations when another build ID of the deployment becomes the current one."""

    @classmethod
    def load(cls) -> Self:
        # Each client and worker asks several times, and reading costs some milliseconds each time.
        variables = frozenset((name, value) for name, value in os.environ.items() if _is_ours(name))
        settings: Self = _read_settings(cls, variables)
        return settings

    @field_validator("agents", "mcp_hosts", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(item.strip() for item in value.split(",") if item.strip())
        return value

    @field_validator(
        *("log", "log_level", "traces", "versioning", "encryption_compression", "visibility"),
        *("heartbeats", "local_tools"),
        mode="before",
    )
    @classmethod
    def _in_any_case(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value


def _is_ours(variable: str) -> bool:
    return variable.upper().startswith((PREFIX, "TEMPORAL_"))


@lru_cache(maxsize=4)
def _read_settings(kind: type[S], _variables: frozenset[tuple[str, str]]) -> S:
    """What these variables of the environment, which are all that say something, come to."""
    _refuse_unknown_variables(known=[PREFIX + name.upper() for name in kind.model_fields])
    refuse_garbled_variables()
    try:
        return kind()
    except ValidationError as error:
        problem = error.errors()[0]
        variable = PREFIX + str(problem["loc"][0]).upper()
        raise InvalidSetting(f"{variable}={problem['input']!r} is invalid: {problem['msg']}.") from None


def _refuse_unknown_variables(*, known: list[str]) -> None:
    for name in os.environ:
        if name.startswith(PREFIX) and name not in known:
            # Without the prefix, which makes everything look alike.
            rests = {setting.removeprefix(PREFIX): setting for setting in known}
            close = [rests[rest] for rest in difflib.get_close_matches(name.removeprefix(PREFIX), rests, n=1)]
            cure = f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."
            raise InvalidSetting(f"No setting is called {name}.", cure=cure)


def refuse_garbled_variables() -> None:
    for name, value in os.environ.items():
        if name.startswith((PREFIX, "TEMPORAL_")) and not is_utf8(value):
            raise InvalidSetting(f"The value of {name} is not UTF-8.")
