"""vLLM, one server or several that serve the same model.

    pip install ".[openai]"
    vllm serve Qwen/Qwen2.5-7B-Instruct                       # on each machine; needs to be running
    python examples/vllm_server.py                            # asks http://localhost:8000/v1
    python examples/vllm_server.py --base-url http://gpu1:8000 http://gpu2:8000

The samples of one question go to one server, whose prefix cache then holds the prompt; different questions go to
different servers. If a server fails, it gets no requests for a while, and its samples start again on another. With a
decision, the streams of the other samples are closed, and the servers stop generating. ``--state online.sqlite`` keeps
the observations of ``calibration="online"``.
"""

import argparse
import sys

from langchain_reasc_openai import ChatOpenAICompatible

from langchain_reasc import Online, ReASCError, ReASCRunnable

QUESTIONS = [
    (
        "Lena has 27 red cups and 14 blue cups. She buys 3 packs of 6 cups. How many cups "
        "does Lena have?"
    ),
    "A train leaves at 9:40 and arrives at 13:15. How many minutes does it travel?",
    "Omar reads 18 pages a day. How many days does he need for a book of 306 pages?",
]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--base-url", nargs="+", default=["http://localhost:8000/v1"])
    options.add_argument(
        "--model", default="Qwen/Qwen2.5-7B-Instruct", help="as the servers name it"
    )
    options.add_argument(
        "--state", help="file for the observations, which the next run continues"
    )
    given = options.parse_args()

    with ChatOpenAICompatible(
        base_url=given.base_url,
        model=given.model,
        temperature=0.7,
        top_k=40,  # vLLM's own parameters are fields too
        max_tokens=1024,
        question_timeout=120,  # seconds
    ) as model:
        # asks once, and says at once if no server is there
        server = model.capabilities()
        print(
            f"{server.server} {server.version or ''}: up to {server.top_logprobs} "
            "alternatives per token"
        )
        # No labels are needed: votes are counted on 16 questions, and then a rule that
        # was learned from them decides.
        reasc = ReASCRunnable(
            model=model, calibration=Online(state=given.state), concurrency=4
        )
        for question, message in zip(QUESTIONS, reasc.batch([*QUESTIONS]), strict=True):
            account = message.response_metadata["reasc"]
            print(
                f"{account['answer'] or '-':>6}  {account['samples']:2} samples, by "
                f"{account['reason']:8}  {question}"
            )
        for server_status in model.status():
            print(
                f"{server_status.url}: {server_status.served} responses, "
                f"{server_status.failed} failures"
            )


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
