"""A chain with any LangChain chat model that returns logprobs.

    python examples/any_chat_model.py                                   # the shipped model, as any other chat model
    python examples/any_chat_model.py --model gpt-4o-mini               # needs OPENAI_API_KEY
    python examples/any_chat_model.py --model qwen --base-url http://localhost:8000/v1     # vLLM, llama-server, ...

``calibration="online"`` needs no labels: in a batch, the first responses to all questions calibrate the decision on
each. OpenAI-compatible servers return the top 20 alternatives of each token, so the measure reads ``top_k``.
"""

import argparse
import sys

from langchain_core.language_models import BaseChatModel

from langchain_reasc import Measure, ReASCError, ReASCRunnable

QUESTIONS = [
    f"{name} has {count} {thing}. {name} buys {more} more {thing}. How many {thing} does {name} have now?"
    for name, count, thing, more in [
        ("Nora", 14, "stamps", 23), ("Omar", 35, "shells", 18), ("Lena", 62, "pens", 29), ("Ivan", 8, "coins", 45),
    ] * 5
]  # fmt: skip


def chat_model(name: str | None, base_url: str | None) -> BaseChatModel:
    if name is None:
        from langchain_reasc_llama_cpp import ChatLlamaCpp

        return ChatLlamaCpp()
    from langchain_openai import ChatOpenAI

    # A local server takes any key; OpenAI's own is read from OPENAI_API_KEY.
    return ChatOpenAI(model=name, base_url=base_url, **({"api_key": "none"} if base_url else {}))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", help="name of a model on the server; default: the shipped model")
    options.add_argument("--base-url", help="of an OpenAI-compatible server")
    given = options.parse_args()

    measure = Measure("top_k", "bottom_group", window=16)  # these answers are short; 128 suits long reasoning
    reasc = ReASCRunnable(model=chat_model(given.model, given.base_url), calibration="online", measure=measure)
    for question, message in zip(QUESTIONS, reasc.batch(list(QUESTIONS), {"max_concurrency": 4}), strict=True):
        account = message.response_metadata["reasc"]
        print(f"{account['answer'] or '-':>6}  {account['samples']:2} samples  {question}")
    print("\n" + "\n".join(account["notices"] or [f"gate open at a score of {reasc.learned and reasc.learned.gate}"]))


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
