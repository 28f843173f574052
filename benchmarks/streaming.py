"""Processor time of a vote in an application, streamed and in whole responses:
``python -m benchmarks.streaming``.

Votes of four answers, eight votes at once, by ``ChatOpenAI`` and
``ChatOpenAICompatible``, of a scripted server on loopback. Where responses are whole,
the server refuses to stream. Milliseconds of this process for each vote, medians of
rounds in which everyone has a turn.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import Any, Final

from langchain_openai import ChatOpenAI
from langchain_reasc_openai import ChatOpenAICompatible

from benchmarks.command import parser_of
from benchmarks.open_loop import upstream
from langchain_reasc import ReASCRunnable

VOTES: Final = 4
AT_ONCE: Final = 8
MODELS: Final[Sequence[type[ChatOpenAI]]] = (ChatOpenAI, ChatOpenAICompatible)
TOKENS: Final = (16, 300)
ALTERNATIVES: Final = (0, 1, 20)
Turn = tuple[type[ChatOpenAI], int, int, str]
"""A chat model, tokens of an answer, alternatives of each, and the server."""


async def milliseconds(turn: Turn, count: int) -> float:
    """Return the processor time of a vote, after one that warms up."""
    kind, tokens, alternatives, url = turn
    fields: dict[str, Any] = {"base_url": url, "api_key": "none", "model": "tiny"}
    if kind is ChatOpenAICompatible:
        fields["preset"] = "vllm"
    if alternatives:
        fields |= {"logprobs": True, "top_logprobs": alternatives}
    voting = ReASCRunnable(
        model=kind(max_tokens=tokens, **fields),
        answer="number",
        rule="fixed_budget",
        max_samples=VOTES,
    )
    await voting.ainvoke("How much is 40 + 2?")
    begun = time.process_time()
    for _ in range(count):
        votes = [voting.ainvoke("How much is 40 + 2?") for _ in range(AT_ONCE)]
        await asyncio.gather(*votes)
    return 1000 * (time.process_time() - begun) / (count * AT_ONCE)


async def medians(urls: Sequence[str], *, rounds: int, count: int) -> dict[Turn, float]:
    """Return the median of each turn."""
    figures: defaultdict[Turn, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for turn in product(MODELS, TOKENS, ALTERNATIVES, urls):
            figures[turn].append(await milliseconds(turn, count))
    return {turn: median(values) for turn, values in figures.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_of("streaming", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=1, help="times eight votes a turn")
    given = parser.parse_args(arguments)
    # A warning says that a server refuses to stream.
    logging.disable(logging.WARNING)
    with upstream() as streams, upstream(streams=False) as whole:
        measuring = medians((streams, whole), rounds=given.rounds, count=given.count)
        figures = asyncio.run(measuring)
    print(f"{'':22} {'tokens':>6} {'k':>3} {'streamed':>9} {'whole':>9}")
    for kind, tokens, alternatives in product(MODELS, TOKENS, ALTERNATIVES):
        streamed = figures[kind, tokens, alternatives, streams]
        in_one_piece = figures[kind, tokens, alternatives, whole]
        row = f"{kind.__name__:22} {tokens:6} {alternatives:3}"
        print(f"{row} {streamed:9.1f} {in_one_piece:9.1f}")


if __name__ == "__main__":
    main()
