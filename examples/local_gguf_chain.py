"""A chain with a GGUF in this process: prompt | ReASCRunnable | parser.

    python examples/local_gguf_chain.py                       # the shipped word-problem model
    python examples/local_gguf_chain.py --model my.gguf       # any GGUF with a chat template

Samples share one prefill and are decoded together; the moment the evidence is sufficient, the rest is cancelled.
"""

import argparse
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_reasc_llama_cpp import ChatLlamaCpp

from langchain_reasc import ReASCError, ReASCRunnable

QUESTION = (
    "Nora has 14 stamps. She buys 23 more stamps. Then she gives away 9 stamps. How many stamps does Nora have now?"
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", help="path of a GGUF; default: the shipped model")
    options.add_argument("--calibration", help="calibration.json of that model; without one, votes are counted (ASC)")
    options.add_argument("question", nargs="?", default=QUESTION)
    given = options.parse_args()

    with ChatLlamaCpp(model_path=given.model, max_tokens=512) as model:
        reasc = ReASCRunnable(model=model, calibration=given.calibration)
        chain = ChatPromptTemplate.from_messages([("human", "{question}")]) | reasc | StrOutputParser()
        print(chain.invoke({"question": given.question}))

        account = reasc.invoke(given.question).response_metadata["reasc"]
    print(
        f"\nanswer {account['answer']}, decided by {account['reason']} after {account['samples']} of 16 samples, ",
        end="",
    )
    print(f"{account['tokens']['output']} tokens generated; evidence {account['evidence']}")


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
