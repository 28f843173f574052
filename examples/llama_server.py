"""llama-server, llama.cpp's own server: calibrate on labelled questions, then decide.

    pip install ".[openai]"
    llama-server -m model.gguf --parallel 8 -c 8192 --port 8080   # needs to be running
    python examples/llama_server.py --data questions.jsonl    # lines of {"question": ..., "answer": ...}

    pip install xllamacpp                                     # or have this script start one on loopback,
    python examples/llama_server.py --start                   # with the small model that comes with the package

The measure uses ``top_k``, the mean log-probability of the 20 likeliest tokens, which needs a server with
``top_logprobs``.
"""

import argparse
import importlib
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from langchain_reasc_openai import ChatOpenAICompatible

from langchain_reasc import Measure, ReASCError, ReASCRunnable, calibrate
from langchain_reasc.answers import equivalent

SHIPPED = files("langchain_reasc_llama_cpp") / "embedded"


def start_server() -> Any:
    """Serve the shipped model in this process, for as long as the returned object
    lives.
    """
    try:
        xllamacpp: Any = importlib.import_module("xllamacpp")
    except ModuleNotFoundError:
        sys.exit(
            "error: xllamacpp is not installed. Install it with: pip install xllamacpp"
        )
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(SHIPPED / "word_problems.gguf")
    parameters.n_parallel, parameters.n_ctx, parameters.n_threads_http = 8, 8192, 16
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    # So small a model needs no more than one thread, and no fitting to the machine.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.fit_params = parameters.warmup = False
    parameters.verbosity = -1
    return xllamacpp.Server(parameters)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--base-url", nargs="+", default=["http://localhost:8080/v1"])
    options.add_argument(
        "--start",
        action="store_true",
        help="start a server on loopback, with xllamacpp",
    )
    options.add_argument(
        "--data",
        type=Path,
        help="labelled questions; default: word problems of the shipped model",
    )
    options.add_argument(
        "--calibrate",
        type=int,
        default=32,
        help="questions to calibrate on; 128 are better",
    )
    options.add_argument("--questions", type=int, default=5, help="questions to answer")
    given = options.parse_args()

    data = given.data or SHIPPED / "calibration.jsonl"
    problems = [
        json.loads(line)
        for line in data.read_text().splitlines()[: given.calibrate + given.questions]
    ]
    started = start_server() if given.start else None
    base_url = started.listening_address if started else given.base_url
    # these answers are short; 128 suits long reasoning
    measure = Measure("top_k", "bottom_group", window=16)
    # A llama-server has one model, whatever it is called here.
    with ChatOpenAICompatible(
        base_url=base_url, model="model", temperature=0.7, max_tokens=256
    ) as model:
        # asks once, and says at once if no server is there
        server = model.capabilities()
        print(
            f"{server.server} {server.version or ''}: up to {server.top_logprobs} "
            "alternatives per token"
        )
        labelled = [
            (problem["question"], problem["answer"])
            for problem in problems[: given.calibrate]
        ]
        calibration = calibrate(model, labelled, answer="boxed", measure=measure)
        print(calibration.summary())
        reasc = ReASCRunnable(model=model, calibration=calibration, answer="boxed")
        for problem in problems[given.calibrate :]:
            account = reasc.invoke(problem["question"]).response_metadata["reasc"]
            verdict = (
                "right" if equivalent(account["answer"], problem["answer"]) else "wrong"
            )
            print(
                f"{account['answer'] or '-':>6}  {verdict}  {account['samples']:2} "
                f"samples, by {account['reason']}"
            )


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
