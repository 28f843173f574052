"""A chain with a GGUF in this process: prompt | ReASCRunnable | parser.

    python examples/local_gguf_chain.py                       # the shipped word-problem model
    python examples/local_gguf_chain.py --model my.gguf       # any GGUF with a chat template

Samples share one prefill and are decoded together. As soon as the evidence is sufficient, the others are cancelled.
"""

import argparse
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path

from langchain_reasc import ReASCError, ReASCRunnable

QUESTION = (
    "Lena has 27 red cups and 14 blue cups. The bus ride takes 25 minutes. Lena buys 3 "
    "packs of 6 cups. How many more cups does Lena have than Omar, who has 30 cups?"
)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", help="path of a GGUF; default: the shipped model")
    options.add_argument(
        "--calibration",
        help="calibration.json of that model; without one, votes are counted",
    )
    options.add_argument("question", nargs="?", default=QUESTION)
    given = options.parse_args()

    with ChatLlamaCpp(model_path=given.model, max_tokens=512) as model:
        own = (
            embedded_model_path().with_name("calibration.json")
            if given.model is None
            else None
        )
        reasc = ReASCRunnable(model=model, calibration=given.calibration or own)
        chain = (
            ChatPromptTemplate.from_messages([("human", "{question}")])
            | reasc
            | StrOutputParser()
        )
        print(chain.invoke({"question": given.question}))

        account = reasc.invoke(given.question).response_metadata["reasc"]
    print(
        (
            f"\nanswer {account['answer']}, decided by {account['reason']} after "
            f"{account['samples']} of 16 samples, "
        ),
        end="",
    )
    print(
        f"{account['tokens']['output']} tokens generated; evidence "
        f"{account['evidence']}"
    )


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
