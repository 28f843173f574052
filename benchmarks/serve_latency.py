"""What `reasc serve` adds to a request, and whether its memory grows, in front of a scripted server on loopback.

python -m benchmarks.serve_latency                         500 requests of each kind, one after another
python -m benchmarks.serve_latency --requests 5000

The server answers at once, so that all that is measured beside it is ours. Each kind of request goes to it and through
`reasc serve` by turns; a vote draws two samples, which the server answers one after another.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.servers.chat_wire import Chat
from tests.servers.fake_server import running

__all__ = ["front", "measure"]

_ASKED: Final = {"model": "tiny", "messages": [{"role": "user", "content": "How much is 40 + 2?"}]}
_KINDS: Final[Mapping[str, dict[str, Any]]] = {
    "passed through": _ASKED,
    "passed through, streamed": {**_ASKED, "stream": True},
    "voted on, 2 samples": {**_ASKED, "reasc": {"answer": "number", "max_samples": 2}},
}
_START: Final = (
    "import typer; from langchain_reasc.cli.options import with_groups; "
    "from langchain_reasc_server.command import serve; app = typer.Typer(); app.command()(with_groups(serve)); app()"
)


def measure(requests: int) -> dict[str, dict[str, float]]:
    """Return kind -> what was measured of it: milliseconds, and kilobytes that the process has grown by.

    Args:
        requests: of each kind, to each of the two; one in ten more warm both up.
    """
    found: dict[str, dict[str, float]] = {}
    with _upstream() as bare, front(bare) as (url, process), httpx.Client(timeout=60) as client:
        for kind, body in _KINDS.items():
            times: dict[str, list[float]] = {bare: [], url: []}
            for number in range(-(requests // 10), requests):
                if number == 0:
                    before = _resident(process)
                for to, seconds in times.items():
                    begun = time.perf_counter()
                    client.post(f"{to}/chat/completions", content=json.dumps(body), headers=_JSON).raise_for_status()
                    if number >= 0:
                        seconds.append(1000 * (time.perf_counter() - begun))
            direct, ours = sorted(times[bare]), sorted(times[url])
            last = int(0.99 * requests)
            found[kind] = {
                "bare p50": statistics.median(direct),
                "bare p99": direct[last],
                "added p50": statistics.median(ours) - statistics.median(direct),
                "added p99": ours[last] - direct[last],
                "grown by kB": _resident(process) - before,
            }
    return found


_JSON: Final = {"content-type": "application/json"}


@contextmanager
def _upstream() -> Iterator[str]:
    """A scripted server in a process of its own; gives its base URL."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def _serve(connection: Any) -> None:
    async def main() -> None:
        async with running(Chat()) as served:
            connection.send(served.url)
            await asyncio.Event().wait()

    asyncio.run(main())


@contextmanager
def front(*upstreams: str, **more: object) -> Iterator[tuple[str, int]]:
    """`reasc serve` in front of servers, in a process of its own; gives its base URL and its process id."""
    options = ["--model", "tiny", "--preset", "vllm", "--no-learning", "--port", "0"]
    options += [part for url in upstreams for part in ("--url", url)]
    options += [part for name, value in more.items() for part in (f"--{name}", str(value))]
    started = subprocess.Popen([sys.executable, "-c", _START, *options], stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    try:
        yield started.stderr.readline().split(" ")[0], started.pid
    finally:
        started.kill()
        started.wait()
        started.stderr.close()


def _resident(process: int) -> int:
    """Return the kilobytes of a process in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    for kind, figures in measure(parser.parse_args(arguments).requests).items():
        print(f"{kind:26}", "  ".join(f"{name} {value:.1f}" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
