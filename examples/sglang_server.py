"""SGLang, one server or several that serve the same model.

    pip install ".[openai]"
    python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B-Instruct --port 30000     # needs to be running
    python examples/sglang_server.py
    python examples/sglang_server.py --base-url http://gpu1:30000 http://gpu2:30000 "How much is 17 * 23?"

Give the servers themselves, not SGLang's router in front of them: the model itself routes by prompt and load, and cuts
off the samples that a decision no longer needs.

With ``--reasoning-parser``, SGLang's streams carry log-probabilities since June 2026. From older versions the model
requests whole responses, which cannot be cut off.
"""

import argparse
import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_reasc_openai import ChatOpenAICompatible

from langchain_reasc import ReASCError, ReASCRunnable

QUESTION = (
    "A train leaves at 9:40 and arrives at 13:15. How many minutes does it travel?"
)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--base-url", nargs="+", default=["http://localhost:30000/v1"])
    options.add_argument(
        "--model", default="Qwen/Qwen2.5-7B-Instruct", help="as the servers name it"
    )
    options.add_argument(
        "--calibration",
        help="calibration.json of that model; without one, votes are counted",
    )
    options.add_argument("question", nargs="?", default=QUESTION)
    given = options.parse_args()

    with ChatOpenAICompatible(
        base_url=given.base_url,
        model=given.model,
        temperature=0.7,
        min_p=0.05,
        max_tokens=1024,
    ) as model:
        # asks once, and says at once if no server is there
        server = model.capabilities()
        print(
            f"{server.server} {server.version or ''}: up to {server.top_logprobs} "
            "alternatives per token"
        )
        reasc = ReASCRunnable(model=model, calibration=given.calibration)
        prompt = ChatPromptTemplate.from_messages(
            [("human", "{question} Put the answer into \\boxed{{}}.")]
        )
        print((prompt | reasc | StrOutputParser()).invoke({"question": given.question}))

        account = reasc.invoke(
            prompt.invoke({"question": given.question})
        ).response_metadata["reasc"]
        print(
            f"\nanswer {account['answer']}, decided by {account['reason']} after "
            f"{account['samples']} samples"
        )


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
