"""Many questions over several servers, one of which is killed and restarted: is a sample lost, or billed twice?

python -m benchmarks.load_test                                      1,000 questions × 16 samples, 4 servers
python -m benchmarks.load_test --questions 100 --samples 8          a smaller one

The servers are processes of their own that write down each response before they send its last token. Every response has
its own number, and its length is drawn from it, so that a sample counted twice, mixed up or billed wrongly shows.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from langchain_core.messages import AIMessage
from langchain_reasc_openai import ChatOpenAICompatible, ReplicaStatus

from tests.servers.chat_wire import PROMPT_TOKENS


class ServerProcess:
    """A server that can be killed and started again on the same port."""

    def __init__(self, log: Path, token: float = 0.1) -> None:
        """Start it on a free port; it appends to ``log``, and takes so many seconds for
        a token.
        """
        self._log, self._token, self.port = log, token, 0
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-m", "tests.servers.counted_server", str(self._log)]
        command += [str(self.port), str(self._token)]
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"


@dataclass
class Report:
    """Asks the questions, and keeps the books.

    Attributes:
        questions: how many.
        samples: wanted of each.
        outcomes: how often each (question, sample) came out whole.
        numbers: how often each response was counted.
        books: number of a response -> its tokens, by the servers' books.
        moved: samples begun again on another server.
        lost_tokens: tokens of the attempts that broke off, which no message bills.
        billed: output tokens of all messages' usage.
        billed_prompts: their input tokens.
        seconds: taken.
        status: of the servers at the end.
        errors: of the samples that failed.
    """

    questions: int
    samples: int
    outcomes: Counter[tuple[int, int]] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)
    books: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    lost_tokens: int = 0
    billed: int = 0
    billed_prompts: int = 0
    seconds: float = 0.0
    status: Sequence[ReplicaStatus] = ()
    errors: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Samples that never came out whole."""
        return self.questions * self.samples - len(self.outcomes)

    @property
    def twice(self) -> int:
        """Samples that came out, or responses that were counted, more than once."""
        return sum(
            count - 1
            for counts in (self.outcomes, self.numbers)
            for count in counts.values()
        )

    @property
    def generated(self) -> int:
        """Output tokens by the servers' books, of the responses that came out."""
        return sum(self.books[number] for number in self.numbers)

    @property
    def ok(self) -> bool:
        """Whether every sample came out once and the bill is what the servers
        generated.
        """
        prompts = self.questions * self.samples * PROMPT_TOKENS
        return (
            not (self.lost or self.twice)
            and self.billed == self.generated
            and self.billed_prompts == prompts
        )

    async def ask(self, model: ChatOpenAICompatible, question: int) -> None:
        """Draw the samples of one question."""
        async with model.asample(f"Question {question}", n=self.samples) as samples:
            async for index, message in samples:
                if not isinstance(message, AIMessage):
                    self.errors.append(repr(message.error))
                    continue
                self.outcomes[question, index] += 1
                self.numbers[message.text.split()[0]] += 1
                assert message.usage_metadata is not None
                self.billed += message.usage_metadata["output_tokens"]
                self.billed_prompts += message.usage_metadata["input_tokens"]
                lost = message.response_metadata.get("failed_attempts", ())
                self.moved += bool(lost)
                self.lost_tokens += sum(one["received_tokens"] for one in lost)

    def read_books(self, logs: Iterable[Path]) -> None:
        """Read what the servers wrote down."""
        for line in (line for log in logs for line in log.read_text().splitlines()):
            with suppress(json.JSONDecodeError):  # the server was killed while it wrote
                entry = json.loads(line)
                self.books[entry["number"]] = entry["tokens"]


async def run(
    *, questions: int, samples: int, servers: int, at_once: int, down: float = 2.0
) -> Report:
    """Run it; a third of the way through, one server is killed, and ``down`` seconds
    later started again.
    """
    report, places = Report(questions, samples), asyncio.Semaphore(at_once)

    async def ask(question: int) -> None:
        async with places:
            await report.ask(model, question)

    async def crash() -> None:
        while len(report.outcomes) + len(report.errors) < questions * samples // 3:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(processes[0].kill)
        await asyncio.sleep(down)
        await asyncio.to_thread(processes[0].start)

    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, f"{at}.jsonl") for at in range(servers)]
        processes = [await asyncio.to_thread(ServerProcess, log) for log in logs]
        model = ChatOpenAICompatible(
            base_url=[process.url for process in processes],
            model="loopback",
            preset="generic",
            timeout=60,
        )
        begun, crashing = time.monotonic(), asyncio.create_task(crash())
        try:
            await asyncio.gather(*map(ask, range(questions)))
            await crashing
        finally:
            crashing.cancel()
            report.seconds, report.status = time.monotonic() - begun, model.status()
            await asyncio.to_thread(model.close)
            for process in processes:
                process.kill()
        report.read_books(logs)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print the figures; returns 1 if a sample was lost or billed twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_test")
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument(
        "--at-once",
        type=int,
        default=12,
        help="questions asked at the same time (%(default)s)",
    )
    given = parser.parse_args(arguments)
    report = asyncio.run(
        run(
            questions=given.questions,
            samples=given.samples,
            servers=given.servers,
            at_once=given.at_once,
        )
    )
    _print(report)
    return int(not report.ok)


def _print(report: Report) -> None:
    wanted = report.questions * report.samples
    print(
        f"{report.questions} questions × {report.samples} samples over "
        f"{len(report.status)} servers"
    )
    print(
        f"{report.seconds:.0f} s, {wanted / report.seconds:.0f} samples/s; one server "
        "killed and started again"
    )
    print(
        f"samples: {wanted} wanted, {len(report.outcomes)} whole, {report.lost} lost, "
        f"{report.twice} counted twice"
    )
    print(
        f"begun again on another server: {report.moved}; tokens lost with them, billed "
        f"to nobody: {report.lost_tokens}"
    )
    print(
        f"output tokens billed: {report.billed}; by the servers' books: "
        f"{report.generated}"
    )
    print(
        "responses that the killed server had finished, unread: "
        f"{len(report.books.keys() - report.numbers.keys())}"
    )
    for one in report.status:
        print(
            f"  {one.url}: served {one.served}, failed {one.failed}, "
            f"{'well' if one.healthy else 'sidelined'}"
        )
    for error in sorted(set(report.errors)):
        print(f"  {report.errors.count(error)} × {error}")


if __name__ == "__main__":
    sys.exit(main())
