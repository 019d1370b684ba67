"""`Webhook`: where an agent's conversations say that they wait, that they stalled, and that they are done."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import ClassVar, Final, get_args
from urllib.parse import quote, urlsplit

from pydantic import Field, field_validator

from everturn import names
from everturn.agent_settings import Setting
from everturn.errors import ConfigError, InvalidAgent
from everturn.validation import durations
from everturn.webhooks.records import WebhookContent, WebhookEvent, WebhookFacts
from everturn.webhooks.signing import signing_keys

LONGEST_TIMEOUT: Final = timedelta(seconds=30)
PLACE: Final = "{conversation_id}"


class Webhook(Setting):
    """Messages over HTTP about an agent's conversations, signed after Standard Webhooks:
    `Agent(..., webhook=Webhook(url="https://...", secret_env="CLERK_WEBHOOK_SECRET"))`.

    Each is a POST of JSON from a worker, beside the conversation, which neither waits for it nor fails with it. It is
    tried again after 429, 5xx and when nothing answers, with the same `webhook-id`; any other answer but 2xx is final.
    """

    _error: ClassVar[type[ConfigError]] = InvalidAgent

    url: str = Field(repr=False)
    """Of yours: redirects are not followed. http:// is for networks that you trust."""
    secret_env: str = Field(min_length=1)
    """The name of the worker's variable with the secret: `whsec_` and the base64 of 24 to 64 random bytes. Several with
    spaces between them sign each message several times, while one secret replaces another."""
    events: tuple[WebhookEvent, ...] = get_args(WebhookEvent)
    """`waiting`: calls wait for an approval, an answer, or a client's result, also those of sub-agents. `stalled`: it
    waits for `resume`. `done`: a message was answered, or the conversation ended, however it did."""
    include: tuple[WebhookContent, ...] = ()
    """What else is sent. `arguments`: those of the calls that wait; `text`: the answer."""
    link: str = ""
    """A page of yours about the conversation, such as the inbox: `https://inbox.example.com/#{conversation_id}`."""
    timeout: timedelta = timedelta(seconds=15)
    """Of one try; 30 seconds at most."""
    patience: timedelta = timedelta(days=3)
    """How long it is tried."""

    _durations = field_validator("timeout", "patience", mode="before")(durations.checked)

    @field_validator("events", "include", mode="before")
    @classmethod
    def _check_lists(cls, given: object) -> object:
        if isinstance(given, str):
            raise ValueError("it is a text: write a list")
        return given

    @field_validator("url")
    @classmethod
    def _check_address(cls, url: str) -> str:
        # urlsplit leaves out what a request would be refused for.
        if any(character.isspace() or not character.isprintable() for character in url):
            raise ValueError("it has a space or another character that no URL has")
        try:
            parts = urlsplit(url)
            _ = parts.port, (parts.hostname or "").encode("idna")
        except ValueError:
            raise ValueError("it is no URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it has to begin with https:// or http://, and a host")
        if parts.username is not None or parts.fragment:
            raise ValueError("it takes no password and no fragment: the secret signs")
        return url

    @field_validator("link")
    @classmethod
    def _check_link(cls, link: str) -> str:
        if link and (PLACE not in link or urlsplit(link).scheme not in ("http", "https")):
            raise ValueError(f"it has to begin with https:// or http://, and to have {PLACE} in it")
        return link

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, timeout: timedelta) -> timedelta:
        if timeout > LONGEST_TIMEOUT:
            raise ValueError(f"it is more than {LONGEST_TIMEOUT.seconds} seconds")
        return timeout

    def facts_of(self, agent: str) -> WebhookFacts:
        """What the agent's conversations are told of it."""
        return WebhookFacts(agent=names.unversioned(agent), events=self.events, include=self.include)

    @property
    def host_name(self) -> str:
        """For the log: the rest of an address may be a secret."""
        return urlsplit(self.url).hostname or ""

    def link_to(self, conversation_id: str) -> str:
        """Empty if it has no `link`."""
        return self.link.replace(PLACE, quote(conversation_id, safe=""))

    def signing_keys(self) -> tuple[bytes, ...]:
        """Raises InvalidAgent if this worker lacks the secret."""
        try:
            return signing_keys(os.environ.get(self.secret_env, ""))
        except ValueError as error:
            raise InvalidAgent(
                f"The webhook's secret in the environment variable {self.secret_env} can't be used: {error}.",
                cure='Set it where the worker runs: python -c "import base64, os; '
                "print('whsec_' + base64.b64encode(os.urandom(32)).decode())\"",
            ) from None
