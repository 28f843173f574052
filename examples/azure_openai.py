"""Azure OpenAI, through langchain-openai's AzureChatOpenAI.

    pip install ".[openai]"
    export AZURE_OPENAI_ENDPOINT=https://NAME.openai.azure.com/ AZURE_OPENAI_API_KEY=...
    python examples/azure_openai.py --deployment my-gpt-4o-mini

Nothing needs to be running. You need a deployment, preferably of a model that returns
log-probabilities. ``calibration="online"`` learns without labels: after 16 questions
its own rule decides, so keep its observations with ``--state online.sqlite``.
"""

import argparse
import os
import sys

from langchain_reasc import Online, ReASCError, ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, missing_extra

QUESTIONS = [
    "A train leaves at 9:40 and arrives at 13:15. How many minutes does it travel?",
    "Omar reads 18 pages a day. How many days does he need for a book of 306 pages?",
]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--deployment", default="gpt-4o-mini", help="its name on Azure"
    )
    options.add_argument("--api-version", default="2024-10-21")
    options.add_argument(
        "--state", help="file for the observations, which the next run continues"
    )
    options.add_argument("question", nargs="*", default=QUESTIONS)
    given = options.parse_args()
    for variable in ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"):
        if not os.environ.get(variable):
            raise ConfigurationError(f"set {variable}")
    try:
        from langchain_openai import AzureChatOpenAI
    except ModuleNotFoundError:
        raise missing_extra("openai", "langchain-openai") from None

    model = AzureChatOpenAI(
        azure_deployment=given.deployment,
        api_version=given.api_version,
        temperature=0.7,
        max_tokens=1024,
    )
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
