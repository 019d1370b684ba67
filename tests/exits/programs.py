"""Programs as users write them: connect, do one thing, end. Each is a file of its own, and has nothing to close."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

_HEAD = """
import asyncio
from uuid import uuid4
import temporalio.client
from everturn import Client
from everturn.errors import Unreachable
"""

_RUN = """
asyncio.run(main())
"""

PROGRAMS = {
    "start": """
async def main():
    client = await Client.connect()
    await client.start("nobody", "Hello", id=f"exit-{uuid4().hex}")
""",
    "send": """
async def main():
    client = await Client.connect()
    await client.send("nobody", "Hello", id=f"exit-{uuid4().hex}")
""",
    "connect only": """
async def main():
    await Client.connect()
""",
    "nobody answers": """
async def main():
    try:
        await Client.connect("127.0.0.1:1")
    except Unreachable:
        pass
""",
    "follow and leave": """
async def follow(conversation):
    async for event in conversation.events():
        pass

async def main():
    client = await Client.connect()
    conversation = await client.start("nobody", "Hello", id=f"exit-{uuid4().hex}")
    task = asyncio.create_task(follow(conversation))
    await asyncio.sleep(0.05)
""",
    "a client of one's own beside": """
async def main():
    global client
    client = await Client.connect()
    other = await temporalio.client.Client.connect(client.temporal.service_client.config.target_host)
    await other.start_workflow("Nothing", id=f"exit-{uuid4().hex}", task_queue="nobody")
""",
    "never left its worker": """
async def main():
    from everturn import Agent, Worker
    client = await Client.connect()
    await Worker(client, agents=[Agent("clerk", model="scripted:demo")]).__aenter__()
    await client.start("clerk", "Hello", id=f"exit-{uuid4().hex}")
""",
}

STUCK = """
from temporalio.bridge import worker
from temporalio.worker import _activity, _workflow

async def for_ever(self):
    await asyncio.Event().wait()

def a_moment_later(run):
    async def late(self):
        try:
            await run(self)
        finally:
            await asyncio.sleep(0.1)
    return late

worker.Worker.finalize_shutdown = for_ever
_activity._ActivityWorker.run = a_moment_later(_activity._ActivityWorker.run)
_workflow._WorkflowWorker.run = a_moment_later(_workflow._WorkflowWorker.run)
"""
"""What happens now and then to a worker whose tasks were cancelled, with this before the program: one of them had been
handed a task that nobody takes up any more."""

UNANSWERED = """
import asyncio
from everturn import Agent, Client, Worker
from temporalio.bridge import worker
from temporalio.worker import _workflow

handed_over = asyncio.Event()
ending = asyncio.Event()
poll = worker.Worker.poll_workflow_activation

async def only_one(self):
    if handed_over.is_set():
        raise worker.PollShutdownError
    task = await poll(self)
    handed_over.set()
    return task

async def none(self):
    while not handed_over.is_set():  # activities are taken on a thread of their own, whose loop is another one
        await asyncio.sleep(0.01)
    raise worker.PollShutdownError

async def unanswered(self, task):
    pass

async def end(self):
    waiting = asyncio.ensure_future(self._ref.finalize_shutdown())
    await asyncio.sleep(0.2)  # the core's thread begins to wait; nothing tells when
    ending.set()
    await waiting

worker.Worker.poll_workflow_activation = only_one
worker.Worker.poll_activity_task = none
worker.Worker.finalize_shutdown = end
_workflow._WorkflowWorker._handle_activation = unanswered

async def main():
    client = await Client.connect()
    worker = Worker(client, agents=[Agent("clerk", model="scripted:demo")])
    await worker.start()
    await client.start("clerk", "Hello")
    await handed_over.wait()
    stopping = asyncio.create_task(worker.stop())
    await ending.wait()

asyncio.run(main())
"""
"""What happened in one of twelve runs of a busy machine: the loop's end cancelled the answer to a task of Temporal's,
and the SDK's core had begun to wait for it on a thread of its own. Here nobody answers the task at all."""

SLOW = """
import threading
import time

class Slow(asyncio.SelectorEventLoop):
    def _write_to_self(self):
        super()._write_to_self()
        # The loop is awake now; whoever woke it is a thread of the SDK's, and gets on later than the program's end.
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.3)

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(0.6)  # the interpreter is on its way down, and gives up the GIL

last = Last()
with asyncio.Runner(loop_factory=Slow) as runner:
    runner.run(main())
"""
"""What happens in one of two runs of a busy machine happens in every run with this at the end of the program."""


def written(name: str, *, slow: bool = False, before: str = "") -> str:
    return _HEAD + before + PROGRAMS[name] + (SLOW if slow else _RUN)
