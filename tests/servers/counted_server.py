"""A server process that writes down every response before it ends it. Imports little, so that it starts fast.

python -m tests.servers.counted_server LOG PORT      prints the port it listens on; port 0 for any
"""

import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Final

from tests.servers.exchange import Exchange
from tests.servers.fake_server import running

_TOKEN: Final = 0.1  # seconds for each


async def serve_until_killed(log: Path, port: int) -> None:
    """Answer with the response's own number, and then as many words as the number says."""
    with log.open("a", buffering=1) as lines:

        async def answer(exchange: Exchange) -> None:
            number = f"{time.monotonic_ns()}-{served.root}-{exchange.at}"
            length = length_of(number)
            await exchange.token(number)
            for _ in range(length - 1):
                await asyncio.sleep(_TOKEN)
                await exchange.token(" so")
            lines.write(json.dumps({"number": number, "tokens": length}) + "\n")
            await exchange.finish()

        async with running(answer, port=port) as served:
            print(served.root.rpartition(":")[2], flush=True)
            await asyncio.Event().wait()


def length_of(number: str) -> int:
    """Tokens of the response with this number: 4 to 11."""
    return 4 + hashlib.blake2b(number.encode()).digest()[0] % 8


if __name__ == "__main__":
    asyncio.run(serve_until_killed(Path(sys.argv[1]), int(sys.argv[2])))
