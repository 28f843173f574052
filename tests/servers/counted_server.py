"""A server process that writes down every response before it ends it, and again after. Imports little, to start fast.

python -m tests.servers.counted_server LOG PORT SECONDS    prints the port it listens on; port 0 for any

A token takes so many seconds. A question that begins with "refuse" is refused.
"""

import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path

from tests.servers.exchange import Exchange
from tests.servers.fake_server import running


async def serve_until_killed(log: Path, port: int, seconds: float) -> None:
    """Answer with the response's own number, and then as many words as the number says."""
    with log.open("a", buffering=1) as lines:

        async def answer(exchange: Exchange) -> None:
            if exchange.question.startswith("refuse"):
                await exchange.refuse(400)
                return
            number = f"{served.root}-{exchange.at}-{time.monotonic_ns()}"  # as an answer too it is nobody else's
            length = length_of(number)
            await exchange.token(number)
            for _ in range(length - 1):
                await asyncio.sleep(seconds)
                await exchange.token(" so")
            written_down = json.dumps({"number": number, "tokens": length}) + "\n"
            lines.write(written_down)
            await exchange.finish()
            lines.write(written_down)

        async with running(answer, port=port) as served:
            print(served.root.rpartition(":")[2], flush=True)
            await asyncio.Event().wait()


def length_of(number: str) -> int:
    """Tokens of the response with this number: 4 to 11."""
    return 4 + hashlib.blake2b(number.encode()).digest()[0] % 8


if __name__ == "__main__":
    asyncio.run(serve_until_killed(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
