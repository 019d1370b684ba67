"""`python -m tests.replay.record [KIND...]`: records conversations of every kind into tests/replay/histories/.

Record anew when a kind is added. A history that is there stays as it is, for it stands for conversations that run
somewhere: `--again` takes the place of those, and is for the time before the first release only.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from everturn import Client, logs
from everturn.devserver import DevServer
from everturn.testing import record_history
from tests.replay import HISTORIES
from tests.replay.kinds import KINDS, SUGGESTED_EVENTS

KIND_SECONDS = 60.0


async def record(kinds: list[str]) -> None:
    settings = {
        "limit.historyCount.suggestContinueAsNew": str(SUGGESTED_EVENTS),
        "history.workflowIdReuseMinimalInterval": '"0s"',
    }
    with tempfile.TemporaryDirectory() as folder:
        async with DevServer(dynamic_config=settings) as server:
            for name in kinds:
                client = await Client.connect(server.address, task_queue=name, by="tester")
                async with asyncio.timeout(KIND_SECONDS):
                    conversation_id = await KINDS[name](client, Path(folder) / name)
                for old in HISTORIES.glob(f"{name}*.json"):
                    if old.stem == name or old.stem.removeprefix(f"{name}-").isdigit():
                        old.unlink()
                files = await record_history(client, conversation_id, HISTORIES / f"{name}.json")
                print(f"{name}: {', '.join(f'{file.name} ({file.stat().st_size:,} bytes)' for file in files)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay.record", description="Records histories.")
    parser.add_argument("kinds", metavar="KIND", nargs="*", choices=[[], *KINDS], help="all that are missing")
    parser.add_argument("--again", action="store_true", help="also those that are recorded already")
    arguments = parser.parse_args()
    wanted = arguments.kinds or list(KINDS)
    logs.forward_core_logs()
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    asyncio.run(record([name for name in wanted if arguments.again or not (HISTORIES / f"{name}.json").exists()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
