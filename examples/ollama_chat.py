"""Ollama, through langchain-ollama's ChatOllama.

    pip install . langchain-ollama
    ollama serve                                    # 0.12.11 or newer, for log-probabilities; needs to be running
    ollama pull qwen2.5:7b
    python examples/ollama_chat.py
    python examples/ollama_chat.py --model gemma3 --base-url http://host:11434 "How much is 17 * 23?"

Each sample is a stream of its own, as with any LangChain chat model. Ollama decodes OLLAMA_NUM_PARALLEL samples at a
time. ``calibration="online"`` learns without labels: after 16 questions its own rule decides, so keep its observations
with ``--state online.sqlite``.
"""

import argparse
import sys

from langchain_reasc import Online, ReASCError, ReASCRunnable

QUESTIONS = [
    "A train leaves at 9:40 and arrives at 13:15. How many minutes does it travel?",
    "Omar reads 18 pages a day. How many days does he need for a book of 306 pages?",
]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--base-url", default="http://localhost:11434")
    options.add_argument("--model", default="qwen2.5:7b")
    options.add_argument(
        "--state", help="file for the observations, which the next run continues"
    )
    options.add_argument("question", nargs="*", default=QUESTIONS)
    given = options.parse_args()
    try:
        from langchain_ollama import ChatOllama
    except ModuleNotFoundError:
        sys.exit(
            "error: langchain-ollama is not installed. Install it with: pip install "
            "langchain-ollama"
        )

    fields = {
        "model": given.model,
        "base_url": given.base_url,
        "temperature": 0.7,
        "num_predict": 1024,
    }
    try:
        model = ChatOllama(**fields, validate_model_on_init=True)
    except (
        ConnectionError,
        ValueError,
    ) as error:  # not running, or the model was not pulled
        sys.exit(f"error: {error}")
    reasc = ReASCRunnable(
        model=model, calibration=Online(state=given.state), concurrency=2
    )
    for question, message in zip(
        given.question, reasc.batch(given.question), strict=True
    ):
        account = message.response_metadata["reasc"]
        print(
            f"{account['answer'] or '-':>6}  {account['samples']:2} samples, by "
            f"{account['reason']:8}  {question}"
        )
        for notice in account["notices"]:
            print(f"        note: {notice}")


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
