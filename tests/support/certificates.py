"""The certificates of this machine are read once by a process: httpx and httpx2 read them for each client that is made,
which takes 25 ms of CPU, and each test has clients of its own, as it has an event loop of its own.

What they share is a real context, as the library makes it, and nothing here changes one."""

from __future__ import annotations

import os
import ssl
from functools import cache
from types import ModuleType
from typing import Any

import httpx
import httpx2
from httpx import _config
from httpx._transports import default
from httpx2 import _config as _config2
from httpx2._transports import default as default2


def read_once() -> None:
    _share_contexts(httpx, _config, default)
    _share_contexts(httpx2, _config2, default2)


def _share_contexts(*modules: ModuleType) -> None:
    create = vars(modules[0])["create_ssl_context"]

    @cache
    def common(trust_env: bool, *_: str | None) -> Any:
        return create(trust_env=trust_env)

    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is True and cert is None:
            shared: ssl.SSLContext = common(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
            return shared
        made: ssl.SSLContext = create(verify, cert, trust_env)
        return made

    for module in modules:
        vars(module)["create_ssl_context"] = create_ssl_context
