"""What `reasc serve` adds to a request, beside other gateways, in front of a server on loopback that answers at once.

python -m benchmarks.serve_latency
python -m benchmarks.serve_latency --its-hub hub/bin/its-iaas --litellm lite/bin/litellm      beside these

Each gateway is asked for one response, whole and streamed, and for a vote of two where it has votes. First comes its
saturation: the rate at which it answers 16 clients who ask again at once. Then requests arrive at random times (a
Poisson process), to each gateway at half of its own saturation and at half of the slowest one's; the bare server gets
them at the same rates. The sides take turns of some seconds, in an order drawn anew in each round. The time of a
request counts from when it was due, so that one which waits behind others is charged for that. What is added is the
difference of the two sides' quantiles, with a 95 % interval by bootstrap over rounds.

Last come votes of four answers of 16 and of 300 tokens, which eight clients ask for again and again, with log-
probabilities, with those of 20 alternatives and without: votes a second, and milliseconds of processor time a vote,
medians of turns. One `reasc serve` is in front of a server that refuses to stream, and so takes whole responses. The
bare server's row is the most votes that any gateway can take which streams its samples: the rate at which the server
streams as many answers.

The client, the server and the gateway share this machine's cores; the bare server's rows show what the client and the
server take by themselves. Each gateway is one process with its own defaults, without keys; telemetry is off.
"""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import numpy as np

from benchmarks.command import parser_of
from benchmarks.open_loop import Client, Timed, precisely, upstream

__all__ = [
    "BARE",
    "WHOLE",
    "Measured",
    "Side",
    "added",
    "front",
    "measure",
    "measure_votes",
    "reasc",
]

BARE: Final = "bare server"
WHOLE: Final = "reasc serve, whole responses"
_AT_ONCE: Final = 16
_STARTED_WITHIN: Final = 60.0  # seconds
_RESAMPLES: Final = 2000
_ASKED: Final = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "How much is 40 + 2?"}],
}
_KINDS: Final[Mapping[str, tuple[bool, int]]] = {
    "one response, whole": (False, 1),
    "one response, streamed": (True, 1),
    "a vote of 2, whole": (False, 2),
}
"""Kind of request -> whether it is streamed, and how many responses it asks for."""
_VOTERS: Final = 8
_VOTES: Final = 4
_LOGPROBS: Final = {"logprobs": True, "top_logprobs": 1}
_ALTERNATIVES: Final = {"logprobs": True, "top_logprobs": 20}
_KINDS_OF_VOTES: Final[Mapping[str, Mapping[str, object]]] = {
    "16 tokens": {"max_tokens": 16},
    "16 tokens, log-probabilities": {"max_tokens": 16, **_LOGPROBS},
    "16 tokens, 20 alternatives": {"max_tokens": 16, **_ALTERNATIVES},
    "300 tokens": {"max_tokens": 300},
    "300 tokens, log-probabilities": {"max_tokens": 300, **_LOGPROBS},
    "300 tokens, 20 alternatives": {"max_tokens": 300, **_ALTERNATIVES},
}
"""Kind of a vote -> fields of its request."""
_START: Final = (
    "import typer; from langchain_reasc.cli.options import with_groups; from "
    "langchain_reasc_server.command import serve; app = typer.Typer(); "
    "app.command()(with_groups(serve)); app()"
)


class Side(NamedTuple):
    """Who is asked.

    Attributes:
        url: its base URL.
        process: its id; 0 if nobody asks what it takes.
        votes: whether it draws as many responses as it is asked for, and gives one
            back.
    """

    url: str
    process: int = 0
    votes: bool = False


@dataclass
class Measured:
    """What was measured of a side at one rate.

    Attributes:
        saturation: requests a second that it answers at most.
        rounds: the times of its requests.
        processor: seconds of processor time that it took.
    """

    saturation: float
    rounds: list[Timed] = field(default_factory=list)
    processor: float = 0.0

    def quantile(
        self, which: str, share: float, rounds: Sequence[int] | None = None
    ) -> float:
        """Return a quantile of the times to the ``first`` byte or to the ``end``, in
        milliseconds.
        """
        chosen = self.rounds if rounds is None else [self.rounds[at] for at in rounds]
        return 1000 * float(
            np.quantile(np.concatenate([getattr(one, which) for one in chosen]), share)
        )


def added(
    side: Measured, bare: Measured, which: str, share: float
) -> tuple[float, float, float]:
    """Return how much later a quantile comes than the bare server's, and the bounds of
    its interval; milliseconds.
    """
    rounds = range(len(side.rounds))
    drawn = np.random.default_rng(0).choice(rounds, size=(_RESAMPLES, len(rounds)))
    differences = [
        side.quantile(which, share, one) - bare.quantile(which, share, one)
        for one in [rounds, *drawn]
    ]
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    return differences[0], float(low), float(high)


def measure(
    sides: Mapping[str, Side], *, seconds: float, rounds: int, seed: int
) -> dict[str, dict[tuple[str, float], Measured]]:
    """Return kind of request -> (side, requests a second) -> what was measured.

    Args:
        sides: name -> who is asked, ``BARE`` among them.
        seconds: of a turn.
        rounds: how often each has a turn at each rate.
        seed: of the times of arrival, and of the order of the turns.
    """
    found = {}
    for kind, (streamed, samples) in _KINDS.items():
        asked = {
            name: side
            for name, side in sides.items()
            if samples == 1 or side.votes or name == BARE
        }
        headers = {"x-reasc-max-samples": str(samples), "x-its-budget": str(samples)}
        clients = {
            name: Client(side.url, {**_ASKED, "stream": streamed}, **headers)
            for name, side in asked.items()
        }
        found[kind] = precisely(_take_turns(asked, clients, seconds, rounds, seed))
    return found


def measure_votes(
    sides: Mapping[str, Side], *, seconds: float, rounds: int
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return (kind, side) -> votes a second, and milliseconds of processor time for
    each; medians of the rounds.

    The bare server streams the answers of a vote one by one.
    """
    turns: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for kind, fields in _KINDS_OF_VOTES.items():
            for name, side in sides.items():
                if side.votes or name == BARE:
                    turn = precisely(_vote(side, fields, seconds))
                    turns.setdefault((kind, name), []).append(turn)
    medians = {key: np.median(figures, axis=0) for key, figures in turns.items()}
    return {key: (float(rate), float(cpu)) for key, (rate, cpu) in medians.items()}


async def _vote(
    side: Side, fields: Mapping[str, object], seconds: float
) -> tuple[float, float]:
    headers = {
        "x-reasc-max-samples": str(_VOTES),
        "x-reasc-rule": "fixed_budget",
        "x-its-budget": str(_VOTES),
    }
    body = {**_ASKED, **fields, "stream": not side.votes}
    client = Client(side.url, body, **headers)
    requests = 1 if side.votes else _VOTES
    await client.saturate(seconds / 2, _VOTERS * requests)  # warms it up
    before = _processor_time(side.process)
    begun = time.monotonic()
    rate = await client.saturate(seconds, _VOTERS * requests) / requests
    answered = rate * (time.monotonic() - begun)
    processor = _processor_time(side.process) - before
    client.close()
    return rate, 1000 * processor / answered


async def _take_turns(
    sides: Mapping[str, Side],
    clients: Mapping[str, Client],
    seconds: float,
    rounds: int,
    seed: int,
) -> dict[tuple[str, float], Measured]:
    order, arrivals = random.Random(seed), np.random.default_rng(seed)
    for client in clients.values():
        await client.saturate(seconds, _AT_ONCE)  # warms it up
    saturation = {
        name: await client.saturate(seconds, _AT_ONCE)
        for name, client in clients.items()
    }
    turns = _turns(
        {
            name: float(round(rate / 2))
            for name, rate in saturation.items()
            if name != BARE
        }
    )
    found = {(name, rate): Measured(saturation[name]) for name, rate in turns}
    for _ in range(rounds):
        for name, rate in order.sample(turns, len(turns)):
            before = _processor_time(sides[name].process)
            found[name, rate].rounds.append(
                await clients[name].arrive(rate, seconds, arrivals)
            )
            found[name, rate].processor += _processor_time(sides[name].process) - before
    for client in clients.values():
        client.close()
    return found


def _turns(half: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return who is asked at which rates: each gateway at two, and the bare server,
    which comes first, at all.
    """
    gateways = {
        (name, rate) for name in half for rate in (half[name], min(half.values()))
    }
    everybody = {*gateways, *((BARE, rate) for _, rate in gateways)}
    return sorted(everybody, key=lambda turn: (turn[1], turn[0] != BARE))


def _processor_time(process: int) -> float:
    """Return the seconds of processor time that a process has taken."""
    if not process:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def front(*upstreams: str, **more: object) -> Iterator[tuple[str, int]]:
    """`reasc serve` in front of servers, in a process of its own; gives its base URL
    and its process id.
    """
    options = ["--model", "tiny", "--preset", "vllm", "--port", "0"]
    options += [part for url in upstreams for part in ("--url", url)]
    for name, value in more.items():
        options += [
            f"--{name.replace('_', '-')}",
            *([] if value is None else [str(value)]),
        ]
    with (
        tempfile.NamedTemporaryFile(
            "w"
        ) as log,  # the server drops lines of a pipe that nobody reads
        _process([sys.executable, "-c", _START, *options], stderr=log) as started,
    ):
        until = time.monotonic() + _STARTED_WITHIN
        while not (told := Path(log.name).read_text(encoding="utf-8")).count("\n"):
            assert started.poll() is None and time.monotonic() < until, told
            time.sleep(0.05)
        yield told.split(" ")[0], started.pid


@contextmanager
def reasc(upstream: str) -> Iterator[Side]:
    """`reasc serve`, which votes on numbers and learns."""
    with front(upstream, answer="number") as (url, process):
        yield Side(url, process, votes=True)


@contextmanager
def _its_hub(executable: str, upstream: str) -> Iterator[Side]:
    """its_hub's gateway, which votes on numbers."""
    port = _free_port()
    with _process(
        [executable, "--port", str(port), "--log-level", "WARNING"]
    ) as process:
        own = {
            "endpoint": upstream,
            "model": "tiny",
            "api_key": "none",
            "alg": "self-consistency",
        }
        _ask_until_ready(
            f"http://127.0.0.1:{port}/configure", {**own, "regex_patterns": [r"(\d+)"]}
        )
        yield Side(f"http://127.0.0.1:{port}/v1", process.pid, votes=True)


@contextmanager
def _litellm(executable: str, upstream: str) -> Iterator[Side]:
    """LiteLLM's proxy."""
    port, model = (
        _free_port(),
        {"model": "openai/tiny", "api_base": upstream, "api_key": "none"},
    )
    own = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        # which is YAML, too
        json.dump(
            {"model_list": [{"model_name": "tiny", "litellm_params": model}]}, config
        )
        config.flush()
        command = [
            executable,
            "--config",
            config.name,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        with _process(
            [*command, "--telemetry", "False"],
            env={**os.environ, "LITELLM_LOG": "ERROR", **own},
        ) as process:
            _ask_until_ready(f"http://127.0.0.1:{port}/v1/chat/completions", _ASKED)
            yield Side(f"http://127.0.0.1:{port}/v1", process.pid)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


@contextmanager
def _process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
    process: subprocess.Popen[str] = subprocess.Popen(command, **{**quiet, **options})
    try:
        yield process
    finally:
        process.terminate()  # which its workers see, too
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ask_until_ready(url: str, body: Any) -> None:
    until = time.monotonic() + _STARTED_WITHIN
    while True:
        try:
            httpx.post(url, json=body).raise_for_status()
            return
        except httpx.HTTPError:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = parser_of("serve_latency", __doc__)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of a turn (%(default)s)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=10,
        help="turns at each rate; 0: votes of four alone (%(default)s)",
    )
    parser.add_argument(
        "--vote-rounds",
        type=int,
        default=5,
        help="turns of each kind of vote of four (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--its-hub",
        metavar="FILE",
        help="the its-iaas of an environment with its_hub[iaas]",
    )
    parser.add_argument(
        "--litellm",
        metavar="FILE",
        help="the litellm of an environment with litellm[proxy]",
    )
    given = parser.parse_args(arguments)
    with upstream() as bare, upstream(streams=False) as whole, ExitStack() as stack:
        sides = {BARE: Side(bare), "reasc serve": stack.enter_context(reasc(bare))}
        for name, executable, rival in (
            ("its_hub", given.its_hub, _its_hub),
            ("LiteLLM", given.litellm, _litellm),
        ):
            if executable is None:
                print(f"{name} is not measured: no --{name.lower().replace('_', '-')}")
            else:
                sides[name] = stack.enter_context(rival(executable, bare))
        found = (
            measure(sides, seconds=given.seconds, rounds=given.rounds, seed=given.seed)
            if given.rounds
            else {}
        )
        sides[WHOLE] = stack.enter_context(reasc(whole))
        votes = measure_votes(sides, seconds=given.seconds, rounds=given.vote_rounds)
    for kind, measured in found.items():
        print(
            f"\n{kind}: milliseconds to the "
            f"{'first byte, and to the end' if _KINDS[kind][0] else 'end'}\n"
        )
        print(
            f"{'':12} {'rate':>5} {'at most':>7} {'p50':>6} {'p99':>7}  "
            f"{'added at p50':20} {'added at p99':22} CPU"
        )
        for which in ("first", "end") if _KINDS[kind][0] else ("end",):
            for (name, rate), one in measured.items():
                print(_row(name, rate, one, measured[BARE, rate], which))
    print(f"\na vote of {_VOTES} answers, {_VOTERS} at once")
    print(f"\n{'':30} {'':28} {'votes a second':>14} {'CPU, ms a vote':>14}")
    for (kind, name), (rate, processor) in votes.items():
        row = f"{kind:30} {name:28} {rate:14.1f}"
        print(f"{row} {processor:14.2f}" if sides[name].process else row)
    return 0


def _row(name: str, rate: float, one: Measured, bare: Measured, which: str) -> str:
    """Return a line: requests a second, those at most, quantiles, what is added,
    milliseconds of the processor each.
    """
    begun = (
        f"{name:12} {rate:5.0f} {one.saturation:7.0f} "
        f"{one.quantile(which, 0.5):6.2f} {one.quantile(which, 0.99):7.2f}"
    )
    if one is bare:
        return begun
    bounds = (added(one, bare, which, share) for share in (0.5, 0.99))
    said = [f"{value:.2f} [{low:.2f}, {high:.2f}]" for value, low, high in bounds]
    answered, failed = (
        sum(len(turn.end) for turn in one.rounds),
        sum(turn.failed for turn in one.rounds),
    )
    processor = f"{1000 * one.processor / max(1, answered):.2f}"
    return f"{begun}  {said[0]:20} {said[1]:22} {processor}" + (
        f"  {failed} not answered" if failed else ""
    )


if __name__ == "__main__":
    sys.exit(main())
