"""Many requests at once through `reasc serve`, over servers of which one is killed and started again.

python -m benchmarks.serve_load                      1,000 requests, 4 servers
python -m benchmarks.serve_load --requests 100       fewer

A half is voted on, by three samples each, and a half passed through; of either, a half is streamed. Every request must
be answered once, and the servers, which write down each response that they end, must have ended as many as were billed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.load_test import ServerProcess
from benchmarks.serve_latency import front

_SAMPLES: Final = 3
_STARTED_WITHIN: Final = 3.0  # seconds in which all requests begin
_KILLED_AFTER: Final = 2.5
_DOWN: Final = 2.0


@dataclass
class Report:
    """What became of the requests.

    Attributes:
        answers: (voted or passed, streamed or whole, status or error) -> how many.
        billed: responses that clients were told of.
        ended: responses that the servers ended.
        resident: kilobytes of the process afterwards.
    """

    answers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    billed: int = 0
    ended: int = 0
    resident: int = 0


async def run(requests: int, servers: int = 4) -> Report:
    """Ask, kill a server, start it again, and keep the books."""
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(number) for number in range(servers)]
        upstreams = [ServerProcess(log) for log in logs]
        try:
            with front(*(one.url for one in upstreams), requests=requests, queue=requests) as (url, process):
                limits = httpx.Limits(max_connections=None)
                async with httpx.AsyncClient(timeout=300, limits=limits) as client, asyncio.TaskGroup() as group:
                    group.create_task(_kill_and_start(upstreams[0]))
                    for number in range(requests):
                        group.create_task(_ask(client, url, number, number / requests, report))
                status = Path(f"/proc/{process}/status").read_text().splitlines()
                report.resident = int(next(line.split()[1] for line in status if line.startswith("VmRSS")))
        finally:
            for one in upstreams:
                one.kill()
        report.ended = sum(len(log.read_text().splitlines()) for log in logs if log.exists())
    return report


async def _kill_and_start(server: ServerProcess) -> None:
    await asyncio.sleep(_KILLED_AFTER)
    server.kill()
    await asyncio.sleep(_DOWN)
    await asyncio.to_thread(server.start)


async def _ask(client: httpx.AsyncClient, url: str, number: int, share: float, report: Report) -> None:
    streamed, voted = number % 2 == 0, number % 4 < 2
    body: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": f"q{number}"}]}
    body |= {"stream": streamed, **({"reasc": {"answer": "number", "max_samples": _SAMPLES}} if voted else {})}
    kind = "voted on" if voted else "passed through", "streamed" if streamed else "whole"
    await asyncio.sleep(_STARTED_WITHIN * share)
    try:
        response = await client.post(f"{url}/chat/completions", json=body)
    except httpx.HTTPError as error:
        report.answers[*kind, repr(error)] += 1
        return
    said = response.text.strip().split("\n\n")
    events = [one.removeprefix("data: ") for one in said if one not in ("data: [DONE]", ": ping")]
    failed = '"error"' in events[-1]
    report.answers[*kind, f"{response.status_code}{' with an error' if failed else ''}"] += 1
    with suppress(ValueError, KeyError):
        report.billed += json.loads(events[-1])["reasc"]["samples"] if voted else int(not failed)


def main(arguments: Sequence[str]) -> int:
    """Print what became of the requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    report = asyncio.run(run(parser.parse_args(arguments).requests))
    for (way, form, outcome), count in sorted(report.answers.items()):
        print(f"{way:15} {form:9} {outcome:20} {count:6,}")
    print(f"billed {report.billed:,}; ended by the servers {report.ended:,}; {report.resident:,} kB in memory")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
