"""Calibrate once on labelled questions, save the calibration, and serve with it.

    python examples/calibrate_then_serve.py [calibration.json]

The first half runs once, offline, for one model, prompt and sampling. The second half
runs in a server. A calibration of another model, prompt or sampling is refused when it
is loaded.
"""

import json
import sys
from importlib.resources import files

from langchain_reasc_llama_cpp import ChatLlamaCpp

from langchain_reasc import ReASCError, ReASCRunnable, calibrate, save_calibration
from langchain_reasc.answers import equivalent

EMBEDDED = files("langchain_reasc_llama_cpp") / "embedded"


def questions(split: str, count: int) -> list[dict[str, str]]:
    """Return labelled questions: the shipped model's held-out problems."""
    return [
        json.loads(line)
        for line in (EMBEDDED / f"{split}.jsonl").read_text().splitlines()[:count]
    ]


def measure(model: ChatLlamaCpp, path: str) -> None:
    """Ask each labelled question until the votes on it are clear, and save the
    calibration.
    """
    labelled = [
        (problem["question"], problem["answer"])
        for problem in questions("calibration", 128)
    ]
    calibration = calibrate(model, labelled, answer="boxed")
    save_calibration(calibration, path)
    print(f"{path}: {calibration.summary()}")


def serve(model: ChatLlamaCpp, path: str) -> None:
    """Load the calibration, and answer, as an application does."""
    reasc = ReASCRunnable(model=model, calibration=path, answer="boxed")
    for problem in questions("test", 5):
        account = reasc.invoke(problem["question"]).response_metadata["reasc"]
        verdict = (
            "right" if equivalent(account["answer"], problem["answer"]) else "wrong"
        )
        print(
            f"{account['answer'] or '-':>6}  {verdict}  {account['samples']:2} "
            f"samples, by {account['reason']}"
        )


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else "calibration.json"
    with ChatLlamaCpp(seed=7) as model:
        measure(model, path)
        serve(model, path)


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
