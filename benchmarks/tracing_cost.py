"""What the spans of `reasc serve --traces` cost: CPU time of a request with and without them, in this process.

python -m benchmarks.tracing_cost                         40 rounds of 50 requests of each kind
python -m benchmarks.tracing_cost --rounds 200

The model answers at once. Spans are encoded and sent to a port if nobody listens, by the thread that exports them,
whose time counts too. Each round is measured with and without spans, by turns; the medians are printed.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx
from langchain_core.language_models import FakeListChatModel
from langchain_reasc_server.app import Gateway
from langchain_reasc_server.calls import VotePolicy
from langchain_reasc_server.local import LangChainModel
from langchain_reasc_server.solver import Solver

__all__ = ["measure"]

_ASKED: Final = {"messages": [{"role": "user", "content": "How much is 40 + 2?"}]}
_KINDS: Final[Mapping[str, dict[str, Any]]] = {
    "passed through": _ASKED,
    "passed through, streamed": {**_ASKED, "stream": True},
    "voted on, 2 samples": {**_ASKED, "reasc": {"answer": "number", "max_samples": 2}},
    "voted on, 8 samples": {**_ASKED, "reasc": {"answer": "number", "max_samples": 8, "rule": "fixed_budget"}},
}


async def measure(rounds: int, requests: int = 50) -> dict[str, tuple[float, float]]:
    """Return kind -> µs of CPU time that a request takes without spans, and with them, in rounds of so many."""
    from langchain_reasc_server.tracing import exported_traces

    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    with exported_traces("fake") as middleware:
        plain, traced = (_client([]), _client(middleware))
        found: dict[str, tuple[float, float]] = {}
        for kind, body in _KINDS.items():
            times = [
                (await _round(plain, body, requests), await _round(traced, body, requests)) for _ in range(rounds + 1)
            ]
            without, spans = zip(*times[1:], strict=True)  # the first warms up
            found[kind] = statistics.median(without), statistics.median(spans)
        return found


def _client(middleware: Sequence[Any]) -> httpx.AsyncClient:
    model = LangChainModel(FakeListChatModel(responses=["it is 42"]), "fake")
    gateway = Gateway(model, Solver(model, VotePolicy(calibration=None)), middleware=middleware)
    return httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url="http://here")


async def _round(client: httpx.AsyncClient, body: Mapping[str, Any], requests: int) -> float:
    begun = time.process_time()
    for _ in range(requests):
        (await client.post("/v1/chat/completions", json=body)).raise_for_status()
    return 1e6 * (time.process_time() - begun) / requests


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    for kind, (without, spans) in asyncio.run(measure(parser.parse_args(arguments).rounds)).items():
        print(f"{kind:26} without {without:6.0f} µs  with {spans:6.0f} µs  the spans {spans - without:5.0f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
