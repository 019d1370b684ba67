"""Lines that no workflow may have, each for a test that it is noticed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from textwrap import indent
from typing import Any


@dataclass(frozen=True)
class Planted:
    name: str
    lines: str
    in_source: bool = True
    """A reader of the source notices it."""
    in_replay: bool = True
    """Whoever watches a replay notices it."""

    @property
    def source(self) -> str:
        return f"async def planted(self):\n{indent(self.lines, '    ')}\n"

    def function(self) -> Callable[[Any], Awaitable[None]]:
        """It, as if it were a function of everturn's."""
        module: dict[str, Any] = {"__name__": "everturn.planted"}
        exec(compile(self.source, "planted.py", "exec"), module)
        found: Callable[[Any], Awaitable[None]] = module["planted"]
        return found


PLANTED = [
    Planted("time", "import time\ntime.time()"),
    Planted("time by another name", "from time import monotonic_ns as now\nnow()"),
    Planted("now", "from datetime import UTC, datetime\ndatetime.now(UTC)"),
    Planted("utcnow", "import datetime as dt\ndt.datetime.utcnow()"),
    Planted("today", "from datetime import date\ndate.today()"),
    Planted("now by its name", "import datetime\ngetattr(datetime.datetime, 'now')()", in_source=False),
    Planted("random", "import random\nrandom.random()"),
    Planted("a choice", "from random import choice\nchoice([1, 2])"),
    Planted("a generator of its own", "import random\nrandom.SystemRandom().random()"),
    Planted("secrets", "import secrets\nsecrets.token_hex()"),
    Planted("uuid4", "from uuid import uuid4\nuuid4()"),
    Planted("uuid1", "import uuid\nuuid.uuid1()"),
    Planted("a reader of vendors' calls", "from everturn.records import ToolCall\nToolCall.parse({'name': 'a'})"),
    Planted("os.environ", "import os\nos.environ.get('HOME')"),
    Planted("os.environ, an item", "from os import environ\nenviron['PATH']"),
    Planted("getenv", "import os\nos.getenv('HOME')"),
    Planted("urandom", "import os\nos.urandom(1)"),
    Planted("getpid", "import os\nos.getpid()"),
    Planted("open", "open('/dev/null').close()"),
    Planted("a path", "from pathlib import Path\nPath('/dev/null').read_text()"),
    Planted("whether a path is there", "from pathlib import Path\nPath('/dev/null').exists()"),
    Planted("a file by its name", "__builtins__['open']('/dev/null').close()", in_source=False),
    Planted("a temporary file", "import tempfile\ntempfile.TemporaryFile().close()"),
    Planted("a socket", "import socket\nsocket.socket().close()"),
    Planted("a name server", "import socket\nsocket.gethostname()"),
    Planted("a process", "import subprocess\nsubprocess.run(['true'])"),
    Planted("a thread", "import threading\nthread = threading.Thread(target=int)\nthread.start()\nthread.join()"),
    Planted("a pool", "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1).submit(int).result()"),
    Planted("a lock", "import threading\nthreading.Lock()"),
    Planted("a log line", "import logging\nlogging.getLogger('everturn').warning('once more')"),
    Planted("a line on stdout", "print('once more')"),
    Planted("whether it is a replay", "from temporalio import workflow\nworkflow.unsafe.is_replaying()"),
    Planted("id", "id(self)"),
    Planted("hash", "hash('a')"),
    Planted("asyncio.wait", "import asyncio\nawait asyncio.wait([asyncio.create_task(asyncio.sleep(0))])"),
    Planted("asyncio.to_thread", "import asyncio\nawait asyncio.to_thread(int)"),
    Planted("a timer without a name", "import asyncio\nawait asyncio.sleep(1)", in_replay=False),
    Planted("a program's arguments", "import sys\nsys.argv", in_replay=False),
    Planted("a loop over a set", "for name in {'a', 'b'}:\n    name.upper()", in_replay=False),
    Planted("a list of a set", "names = frozenset('ab')\nlist(names)", in_replay=False),
    Planted("a set's first", "names = {'a'} | {'b'}\nnext(iter(names))", in_replay=False),
    Planted("a set's any", "names = set('ab')\nnames.pop()", in_replay=False),
    Planted("a set's text", "names: set[str] = self.names\n', '.join(names)", in_replay=False),
    Planted("a field's set", "self.names = set('ab')\n[one for one in self.names]", in_replay=False),
    Planted("keys less others", "for name in {'a': 1}.keys() - {'b'}:\n    pass", in_replay=False),
    Planted("all of a set", "print_all = min\nprint_all(*{'a', 'b'})", in_replay=False),
    Planted("a global", "global count\ncount = 1", in_replay=False),
]
