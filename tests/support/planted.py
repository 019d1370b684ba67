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


REFUSED_MODULES = {
    "a clock in a variable": """
from datetime import datetime

def f() -> datetime:
    d = datetime
    return d.now()
""",
    "a clock in a module's variable": """
from datetime import datetime

d = datetime

def f() -> datetime:
    return d.now()
""",
    "a clock as a default": """
from datetime import datetime

def f(d=datetime):
    return d.fromtimestamp(1)
""",
    "a clock that is given to others": """
from datetime import datetime

def f(g):
    return g(datetime)
""",
    "a class of its own that is a clock": """
from datetime import datetime

class At(datetime):
    pass
""",
    "a time's clock": """
def f(at):
    return type(at).now()
""",
    "a time's class": """
def f(at):
    return at.__class__.now()
""",
    "a clock by its name": """
from datetime import datetime

def f():
    return getattr(datetime, "now")()
""",
    "a clock by a name that is not written": """
from datetime import datetime

def f(name):
    return getattr(datetime, name)()
""",
    "a clock by an operator": """
from operator import methodcaller

def f(at):
    return methodcaller("now")(at)
""",
    "a time without a zone": """
from datetime import datetime

def f(x):
    return datetime.fromtimestamp(x)
""",
    "a time whose zone is None": """
from datetime import datetime

def f(x):
    return datetime.fromtimestamp(x, tz=None)
""",
    "times without a zone": """
from datetime import datetime

def f(x):
    return list(map(datetime.fromtimestamp, x))
""",
    "a time in the machine's zone": """
def f(at):
    return at.astimezone().isoformat()
""",
    "a date and a time without a zone": """
from datetime import datetime

def f():
    return datetime(2026, 11, 24).timestamp()
""",
    "an import that may fail": """
try:
    import time
except ImportError:
    time = None

def f():
    return time.time()
""",
    "an import that may fail, in a function": """
def f():
    try:
        from time import time
    except ImportError:
        time = None
    return time()
""",
    "an import of a class": """
class A:
    import time

    def f(self):
        return self.time.time()
""",
    "a variable of a list has the module's name": """
import time

def f(xs):
    return [time for time in xs], time.time()
""",
    "a variable of a list has the function's name": """
def f(xs):
    return [open for open in xs], open("/x")
""",
    "a variable of the module's list": """
import time

XS = [time for time in ("a",)]

def f():
    return time.time()
""",
    "an argument of another has the module's name": """
import time

def f():
    def g(time):
        return time
    return g(time.time()), lambda time: time
""",
    "the package's face": """
def f():
    from everturn import Client
    return Client
""",
    "the package's face, by its name": """
import everturn

def f():
    return everturn.Client
""",
    "a cache": """
from functools import lru_cache

@lru_cache(maxsize=2)
def f(x):
    return x
""",
    "a cache of a method": """
import functools

class A:
    @functools.cache
    def f(self):
        return 1
""",
    "a cache that is made later": """
from functools import cache

def f(x):
    return x

g = cache(f)
""",
    "a list of the module's": """
SEEN = []

def f(x):
    SEEN.append(x)
""",
    "a list of the module's, by another name": """
SEEN = []

def f(x):
    seen = SEEN
    seen.append(x)
""",
    "a list of the module's, given to others": """
SEEN = []

def f(g):
    g(SEEN)
""",
    "a list of the module's, sorted": """
SEEN = [2, 1]

def f():
    SEEN.sort()
""",
    "a list of the module's, though another has one of that name": """
SEEN = []

def f(x):
    SEEN.append(x)

    def g(SEEN):
        return SEEN
""",
    "a list of the module's, in a condition": """
if True:
    SEEN = []

def f(x):
    SEEN.append(x)
""",
    "a list in what the module has": """
SEEN = {"a": []}

def f(x):
    SEEN["a"].append(x)
""",
    "an item in what the module has": """
SEEN = {"a": {}}

def f(x):
    SEEN["a"]["b"] = x
""",
    "what another module has": """
from everturn.names import SEARCHABLE

def f(x):
    SEARCHABLE.update(x)
""",
    "what another module has, by that": """
from everturn import names

def f(x):
    names.SEARCHABLE[x] = x
""",
    "another module's name": """
from everturn import names

def f():
    names.CALL_MODEL = "call"
""",
    "another module's name, by its name": """
from everturn import names

def f():
    setattr(names, "CALL_MODEL", "call")
""",
    "a counter": """
import itertools

NEXT = itertools.count()

def f():
    return next(NEXT)
""",
    "a class's list": """
class A:
    seen = []

    def f(self, x):
        self.seen.append(x)
""",
    "a class's number": """
class A:
    seen = 0

    def f(self):
        A.seen += 1
""",
    "its own class's number": """
class A:
    seen = 0

    def f(self):
        type(self).seen += 1
""",
    "its own class's number, by its class method": """
class A:
    seen = 0

    @classmethod
    def f(cls):
        cls.seen += 1
""",
    "a function's own": """
def f():
    f.seen = 1
""",
    "a default that is kept": """
def f(x, seen=[]):
    seen.append(x)
""",
    "a global, further in": """
class A:
    def f(self):
        def g():
            global COUNT
            COUNT = 1
""",
    "an order by id": """
def f(xs):
    return sorted(xs, key=id)
""",
    "its own hash": """
def f(x):
    return x.__hash__()
""",
    "a set's order under a key": """
def f(xs: set[str]):
    return sorted(xs, key=len)
""",
    "the longest of a set": """
def f(xs: set[str]):
    return max(xs, key=len)
""",
    "a set's sum": """
def f(xs: set[float]):
    return sum(xs)
""",
    "a set's text": """
def f(xs: set[str]):
    return f"{xs}"
""",
    "a set's text, by a function": """
def f(xs: set[str]):
    return str(xs)
""",
    "a dictionary of sets": """
def f(xs: dict[str, set[str]]):
    return [x for x in xs["a"]]
""",
    "a dictionary of sets, asked": """
def f(xs: dict[str, set[str]]):
    return list(xs.get("a", ()))
""",
    "a dictionary of sets, read": """
def f(xs: dict[str, set[str]]):
    for name, found in xs.items():
        yield from found
""",
    "a set or None": """
from typing import Optional

def f(xs: Optional[set[str]]):
    return list(xs)
""",
    "a set whose type is quoted": """
def f(xs: "set[str]"):
    return list(xs)
""",
    "the environment by its name": """
import os

def f():
    return getattr(os, "environ")["A"]
""",
    "the environment by way of a module that has it": """
import inspect

def f():
    return getattr(inspect, "o" + "s").environ
""",
    "what a module has, by a name that is not written": """
import json

def f(name):
    return getattr(json, name)
""",
    "an import by a function": """
def f():
    return __import__("time").time()
""",
    "an import by a module": """
from importlib import import_module

def f():
    return import_module("time").time()
""",
    "what is built in": """
def f():
    return __builtins__["open"]
""",
    "the module's loader": """
def f():
    return __loader__.load_module("os")
""",
    "a function's globals": """
def g(): ...

def f():
    return g.__globals__["os"]
""",
    "all classes": """
def f():
    return object.__subclasses__()
""",
    "a field that asks for the time": """
from pydantic import BaseModel, PastDatetime

class A(BaseModel):
    written_at: PastDatetime | None = None
""",
    "a field that looks for a file": """
import pydantic

class A(pydantic.BaseModel):
    attached: "pydantic.FilePath | None" = None
""",
    "a type that asks for the time": """
from typing import Annotated
from pydantic import Field, FutureDate

Later = Annotated[FutureDate, Field()]
""",
    "a type by its pydantic module": """
import pydantic.types

class A:
    folder: list["pydantic.types.DirectoryPath"]
""",
    "the moment of a text's time": """
from datetime import datetime

def f(text):
    return datetime.fromisoformat(text).timestamp()
""",
    "the moment of a time that may have no zone": """
def f(at):
    return at.timestamp()
""",
    "the moments of times": """
from datetime import datetime

def f(times):
    return list(map(datetime.timestamp, times))
""",
    "the moment of a time, by the method's name": """
def f(at):
    return getattr(at, "timestamp")()
""",
    "a zone for a time that may have none": """
from datetime import UTC

def f(at):
    return at.astimezone(UTC)
""",
    "a time's moment, as text": """
def f(at):
    return f"{at:%s}"
""",
    "another folder": """
import contextlib

def f():
    with contextlib.chdir("/"):
        pass
""",
    "another place for what is printed": """
from contextlib import redirect_stdout

def f(file):
    with redirect_stdout(file):
        pass
""",
    "an import by a module of a module": """
import inspect

def f():
    return inspect.importlib.import_module("time").time()
""",
    "all modules, by a module of a module": """
import collections

def f():
    return collections._sys.modules["time"].time()
""",
    "what is built in, by a module of a module": """
import dataclasses

def f():
    return dataclasses.builtins.open("/x")
""",
    "a file, by a module of a harmless module": """
import json

def f():
    return json.codecs.open("/x")
""",
    "a module of a harmless module, imported from it": """
from json import codecs

def f():
    return codecs.open("/x")
""",
    "what another module of ours imports": """
from everturn import records

def f():
    return records.uuid4()
""",
    "what another module of ours imports, imported from it": """
from everturn.logs import sys

def f():
    return sys.modules["time"].time()
""",
    "who calls": """
import inspect

def f():
    return inspect.currentframe().f_back
""",
    "text that runs as code": """
import typing

def f(g):
    return typing.get_type_hints(g)
""",
    "a protobuf's clock": """
def f(at):
    at.GetCurrentTime()
""",
    "whether Python was told to check": """
def f():
    return 1 if __debug__ else 2
""",
    "a module of a module": """
import inspect

def f() -> str:
    return inspect.os.environ['A']
""",
    "for those who run it": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import json as os
else:
    import os

def f() -> str:
    return os.environ['A']
""",
    "under another condition": """
from typing import TYPE_CHECKING
import time

def f() -> float:
    if TYPE_CHECKING or True:
        return time.time()
""",
}
"""Whole modules, each with what no workflow may do."""

ALLOWED_MODULES = {
    "the workflow's clock": """
from temporalio import workflow

def f():
    return workflow.now().isoformat()
""",
    "what is a time": """
from datetime import datetime

def f(at: datetime):
    return isinstance(at, datetime | str) and at.isoformat()
""",
    "times with a zone": """
from datetime import UTC, datetime
from temporalio import workflow

def f(x, zone):
    made = datetime(2026, 11, 24, tzinfo=UTC).astimezone(zone)
    begun = workflow.info().workflow_start_time.timestamp()
    return datetime.fromtimestamp(x, UTC).timestamp(), datetime.fromtimestamp(x, tz=zone), made, begun, f"{x:.1%}"
""",
    "an import that may fail, of what is harmless": """
try:
    import zlib
except ImportError:
    zlib = None

def f(x):
    return zlib.crc32(x)
""",
    "a module's name for what is its own": """
def f(time, xs):
    return [os.upper() for os in xs], time.time(), (lambda open: open("x"))
""",
    "a name that another function imports": """
from everturn import names

def f(json):
    return json.loads("1"), names.CALL_MODEL
""",
    "a module of the package": """
import everturn.names
from everturn import records

def f():
    return everturn.names.CALL_MODEL, records.Text(text="")
""",
    "what the module only reads": """
WORDS = {"a": ["b"]}
MORE = [*WORDS]

def f(x):
    words = [word for word in WORDS["a"] if word in WORDS]
    return words, WORDS.get(x), sorted(MORE), {**WORDS}, len(MORE), ", ".join(MORE)
""",
    "a list of its own": """
SEEN = ("a",)

class A:
    def __init__(self):
        self.seen = [*SEEN]

    def f(self, x, names=()):
        self.seen.append(x)
        SEEN = [*names]
        SEEN.append(x)
        return SEEN
""",
    "a variable of the context": """
from contextvars import ContextVar

_serves: ContextVar[bool] = ContextVar("serves", default=False)

def f():
    _serves.set(True)
""",
    "fields by their names": """
def f(self, name):
    return getattr(self, name), getattr(self, "message", ""), hasattr(self, "text")
""",
    "a set that is asked, and sorted": """
def f(xs: set[str], by_name: dict[str, set[str]]):
    return sorted(xs), len(xs), "a" in by_name["a"], sorted(by_name.get("a", set())), list(by_name), bool(xs)
""",
    "the order of a list under a key": """
def f(xs: list[str]):
    return sorted(xs, key=len), max(xs, key=len), sum(map(len, xs)), str(xs), f"{xs}"
""",
    "fields of records": """
from datetime import datetime
from typing import Annotated, Literal
from pydantic import BaseModel, Field

class A(BaseModel):
    kind: Literal["open", "a b", "import"] = "open"
    at: datetime | None = None
    texts: Annotated[tuple[str, ...], Field(max_length=2)] = ()
""",
    "what another module of ours imports of ours": """
from everturn.carryover import Message

def f():
    return Message
""",
    "functions that are wrapped": """
import functools

def f(g):
    @functools.wraps(g)
    def h():
        return g()
    return h
""",
}
"""Their near misses."""
