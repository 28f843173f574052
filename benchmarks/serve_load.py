"""Many requests at once through `reasc serve`, over several servers, one of which is killed and restarted.

python -m benchmarks.serve_load                                       1,000 requests, all at once, 4 servers
python -m benchmarks.serve_load --workers 2                           through two processes
python -m benchmarks.serve_load --requests 20000 --concurrency 64     a long run: does memory grow?

All at once: a half is voted on, by three samples each, and a half passed through; of either, a half is streamed. Every
request must be answered once. What is billed must be what the servers have sent by their own books, in which each
response stands before it ends, and again after; of the killed one's, those that stand there once may have been sent.

With --concurrency so many requests run at a time, and what is voted on is learned from. Of eight requests two are left
by their clients in the middle, one is refused by the servers, and one is wrong. The server's memory is looked at after
every 20 requests. Its slope is that of the means of the last nine of ten stretches; the interval is Student's.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import numpy as np
from scipy import stats

from benchmarks.command import parser_of
from benchmarks.load_test import ServerProcess
from benchmarks.serve_latency import front
from tests.servers.chat_wire import PROMPT_TOKENS

__all__ = ["Report", "run"]

_STRETCHES: Final = 10
_FILLING: Final = 2
"""Stretches of a long run until the last 512 votes and questions are there, which are
kept.
"""
_LOOKED_AT_AFTER: Final = 20  # requests
_KILLED_AFTER: Final = 0.2  # of the requests have been answered
_DOWN: Final = 2.0  # seconds
_STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}
_ONE: Final = {"reasc": {"max_samples": 1}}


class _Kind(NamedTuple):
    name: str
    fields: Mapping[str, Any]
    leaves: bool = False


_ANSWERED: Final = (
    _Kind("voted on, whole", {}),
    _Kind("voted on, streamed", _STREAMED),
    _Kind("passed through, whole", _ONE),
    _Kind("passed through, streamed", {**_ONE, **_STREAMED}),
)
_MIXED: Final = (
    *_ANSWERED,
    _Kind("voted on, left", _STREAMED, leaves=True),
    _Kind("passed through, left", {**_ONE, **_STREAMED}, leaves=True),
    _Kind(
        "refused by the servers",
        {"messages": [{"role": "user", "content": "refuse it"}]},
    ),
    _Kind("wrong", {"reasc": {"wrong": 1}}),
)


@dataclass
class Report:
    """What became of the requests.

    Attributes:
        answers: (what was asked, status or error) -> how many.
        open: requests that are open now.
        at_once: how many have been at the same time, at most.
        billed: responses that clients were told of, and their tokens.
        ended: responses that the servers have ended.
        sent: those of them that were certainly sent.
        memory: kilobytes of the server, from time to time.
        seconds: taken.
    """

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    open: int = 0
    at_once: int = 0
    billed: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_billed_right(self) -> bool:
        """Whether the bill is what the servers have sent, or may have sent."""
        return all(
            self.sent[what] <= self.billed[what] <= self.ended[what]
            for what in ("responses", "tokens")
        )

    @property
    def stretches(self) -> list[float]:
        """The means of the memory in ten stretches of the run."""
        return [
            float(np.mean(part)) for part in np.array_split(self.memory, _STRETCHES)
        ]

    def slope(self) -> tuple[float, float, float]:
        """Return by how many kilobytes a request memory has grown, once what is kept is
        full, and a 95 % interval.
        """
        means, requests = (
            self.stretches[_FILLING:],
            len(self.memory) * _LOOKED_AT_AFTER / _STRETCHES,
        )
        fitted = stats.linregress(np.arange(len(means)) * requests, means)
        half = stats.t.ppf(0.975, len(means) - 2) * fitted.stderr
        return fitted.slope, fitted.slope - half, fitted.slope + half

    def bill(self, said: str) -> str:
        """Take a reply or a stream into the bill; return what is wrong with it."""
        events = [one.removeprefix("data: ") for one in said.strip().split("\n\n")]
        said_last = json.loads(
            next(one for one in reversed(events) if one.startswith("{"))
        )
        if "error" in said_last:
            return " with an error"
        account = said_last.get("reasc") or {"launched": 1}
        self.billed.update(
            responses=account["launched"], tokens=said_last["usage"]["total_tokens"]
        )
        return ""

    def read_books(self, logs: Sequence[Path]) -> None:
        """Read what the servers wrote down, once before and once after a response was
        ended.
        """
        lines = Counter(line for log in logs for line in log.read_text().splitlines())
        for line, times in lines.items():
            with suppress(json.JSONDecodeError):  # the server was killed while it wrote
                tokens = json.loads(line)["tokens"] + PROMPT_TOKENS
                self.ended.update(responses=1, tokens=tokens)
                if times > 1:
                    self.sent.update(responses=1, tokens=tokens)


async def run(
    requests: int, *, servers: int = 4, workers: int = 1, concurrency: int | None = None
) -> Report:
    """Ask, kill a server, start it again, and keep the books.

    Args:
        requests: how many.
        servers: how many.
        workers: processes of `reasc serve`.
        concurrency: requests at a time, of all kinds; None for all at once.
    """
    report, begun, kinds = (
        Report(),
        time.monotonic(),
        _MIXED if concurrency else _ANSWERED,
    )
    options: dict[str, Any] = {
        "requests": requests,
        "queue": requests,
        "workers": workers,
    }
    options |= {
        "answer": "number",
        "max_samples": 3,
        **({} if concurrency else {"no_learning": None}),
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        logs = [Path(folder) / str(number) for number in range(servers)]
        upstreams = [ServerProcess(log, 0.02 if concurrency else 0.3) for log in logs]
        for one in upstreams:
            stack.callback(one.kill)
        url, process = stack.enter_context(
            front(*(one.url for one in upstreams), **options)
        )
        places = asyncio.Semaphore(concurrency or requests)
        any_number = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=any_number) as client,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(_kill_and_start(upstreams[0], report, requests))
            for number in range(requests):
                await places.acquire()
                asked = group.create_task(
                    _ask(client, url, number, kinds[number % len(kinds)], report)
                )
                asked.add_done_callback(lambda _: places.release())
                if number % _LOOKED_AT_AFTER == 0:
                    report.memory.append(_resident(process))
        stack.close()
        report.read_books(logs)
    report.seconds = time.monotonic() - begun
    return report


async def _kill_and_start(server: ServerProcess, report: Report, requests: int) -> None:
    while sum(report.answers.values()) < _KILLED_AFTER * requests:
        await asyncio.sleep(0.001)
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(_DOWN)
    await asyncio.to_thread(server.start)


async def _ask(
    client: aiohttp.ClientSession, url: str, number: int, kind: _Kind, report: Report
) -> None:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"q{number}"}],
        **kind.fields,
    }
    report.open += 1
    report.at_once = max(report.at_once, report.open)
    try:
        async with client.post(f"{url}/chat/completions", json=body) as response:
            outcome = str(response.status)
            if kind.leaves:
                await response.content.readany()
                response.close()
            elif response.status == 200:
                outcome += report.bill(await response.text())
    except (aiohttp.ClientError, TimeoutError) as error:
        outcome = repr(error)
    report.open -= 1
    report.answers[kind.name, outcome] += 1


def _resident(process: int) -> int:
    """Return the kilobytes of a process in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(
        next(
            line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what became of the requests; returns 1 if the books are not equal."""
    parser = parser_of("serve_load", __doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument(
        "--workers", type=int, default=1, help="processes of reasc serve (%(default)s)"
    )
    parser.add_argument(
        "--concurrency", type=int, help="requests at a time; default: all at once"
    )
    given = parser.parse_args(arguments)
    report = asyncio.run(
        run(given.requests, workers=given.workers, concurrency=given.concurrency)
    )
    for (kind, outcome), count in sorted(report.answers.items()):
        print(f"{kind:25} {outcome:30} {count:6,}")
    print(f"{report.seconds:.0f} s; {report.at_once:,} requests open at once at most")
    if given.concurrency:
        slope, low, high = (1000 * value for value in report.slope())
        print(
            "memory in each tenth of the run, MB:",
            *(f"{mean / 1000:.1f}" for mean in report.stretches),
        )
        print(
            f"its slope in the last eight tenths: {slope:+.0f} [{low:+.0f}, "
            f"{high:+.0f}] kB in 1,000 requests"
        )
        return 0
    for what in ("responses", "tokens"):
        sent, ended = report.sent[what], report.ended[what]
        print(
            f"{what}: billed {report.billed[what]:,}; sent by the servers {sent:,}, or "
            f"up to {ended:,}"
        )
    return int(not report.is_billed_right)


if __name__ == "__main__":
    sys.exit(main())
