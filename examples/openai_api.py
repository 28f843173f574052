"""OpenAI.

    pip install ".[openai]"
    export OPENAI_API_KEY=...                       # nothing needs to be running
    python examples/openai_api.py
    python examples/openai_api.py --model gpt-4.1-mini "How much is 17 * 23?"

``ChatOpenAI`` works, too. ``ChatOpenAICompatible`` closes its streams as soon as the
answer is decided, and honours ``Retry-After``. ``calibration="online"`` learns without
labels: after 16 questions its own rule decides, so keep its observations with
``--state online.sqlite``. Reasoning models return no log-probabilities; then only
answers are learned from. Models that OpenAI serves only by its Responses API need
``ChatOpenAI`` and no calibration.
"""

import argparse
import sys

from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_reasc_openai import ChatOpenAICompatible

from langchain_reasc import Online, ReASCError, ReASCRunnable

QUESTIONS = [
    "A train leaves at 9:40 and arrives at 13:15. How many minutes does it travel?",
    "Omar reads 18 pages a day. How many days does he need for a book of 306 pages?",
]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", default="gpt-4o-mini")
    options.add_argument(
        "--state", help="file for the observations, which the next run continues"
    )
    options.add_argument("question", nargs="*", default=QUESTIONS)
    given = options.parse_args()

    with ChatOpenAICompatible(
        preset="openai",  # reads OPENAI_API_KEY
        model=given.model,
        temperature=0.7,
        max_tokens=1024,
        rate_limiter=InMemoryRateLimiter(
            requests_per_second=5, max_bucket_size=8
        ),  # each sample is a request
    ) as model:
        reasc = ReASCRunnable(
            model=model, calibration=Online(state=given.state), concurrency=4
        )
        for question, message in zip(
            given.question, reasc.batch(given.question), strict=True
        ):
            account = message.response_metadata["reasc"]
            print(
                f"{account['answer'] or '-':>6}  {account['samples']:2} samples, by "
                f"{account['reason']:8}  {question}"
            )


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
