"""A batch with any LangChain chat model, without labels.

    python examples/any_chat_model.py                                   # the shipped model, as any other chat model
    python examples/any_chat_model.py --model gpt-4o-mini               # needs OPENAI_API_KEY
    python examples/any_chat_model.py --model qwen --base-url http://localhost:8000/v1     # vLLM, llama-server, ...

``calibration="online"`` learns while it answers, from how the responses to each question agree. It counts votes on the
first 16 questions; then it stops as soon as the rest of the budget would hardly change the answer. It needs no
logprobs, and uses them if they come and prove useful. ``--state`` keeps the observations for the next run.
"""

import argparse
import json
import os
import sys
from importlib.resources import files

from langchain_core.language_models import BaseChatModel

from langchain_reasc import Online, ReASCError, ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, missing_extra

# word problems that come with the package
HELD_OUT = files("langchain_reasc_llama_cpp") / "embedded" / "test.jsonl"


def chat_model(name: str | None, base_url: str | None) -> BaseChatModel:
    if name is None:
        from langchain_reasc_llama_cpp import ChatLlamaCpp

        return ChatLlamaCpp()
    try:
        from langchain_openai import ChatOpenAI
    except ModuleNotFoundError:
        raise missing_extra("openai", "langchain-openai") from None
    if base_url is None and "OPENAI_API_KEY" not in os.environ:
        raise ConfigurationError("set OPENAI_API_KEY, or name a server with --base-url")
    # A local server takes any key; OpenAI's own is read from OPENAI_API_KEY.
    return ChatOpenAI(
        model=name, base_url=base_url, **({"api_key": "none"} if base_url else {})
    )


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--model", help="name of a model on the server; default: the shipped model"
    )
    options.add_argument("--base-url", help="of an OpenAI-compatible server")
    options.add_argument(
        "--state", help="file for the observations, which the next run continues"
    )
    given = options.parse_args()

    questions = [
        json.loads(line)["question"] for line in HELD_OUT.read_text().splitlines()[:48]
    ]
    model = chat_model(given.model, given.base_url)
    reasc = ReASCRunnable(model=model, calibration=Online(state=given.state))
    messages = reasc.batch(questions, {"max_concurrency": 4})
    for question, message in zip(questions, messages, strict=True):
        account = message.response_metadata["reasc"]
        print(
            f"{account['answer'] or '-':>6}  {account['samples']:2} samples, by "
            f"{account['reason']:8}  {question}"
        )
    spent = sum(
        message.usage_metadata["output_tokens"]
        for message in messages
        if message.usage_metadata
    )
    print(f"\n{spent:,} tokens generated for {len(questions)} questions")
    for notice in account["notices"]:
        print(f"note: {notice}")


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
