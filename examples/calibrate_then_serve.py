"""Calibrate once on labelled questions, save the calibration, and serve with it.

    python examples/calibrate_then_serve.py [calibration.json]

The first half is done once, offline, for one model, prompt and sampling; the second half is what a server runs. A
calibration that was measured on something else is refused when it is loaded.
"""

import json
import sys
from importlib.resources import files

from langchain_reasc_llama_cpp import ChatLlamaCpp

from langchain_reasc import ReASCError, ReASCRunnable, calibrate, save_calibration
from langchain_reasc.answers import equivalent

EMBEDDED = files("langchain_reasc_llama_cpp") / "embedded"


def questions(split: str, count: int) -> list[dict[str, str]]:
    """Labelled questions: the shipped model's own held-out problems."""
    return [json.loads(line) for line in (EMBEDDED / f"{split}.jsonl").read_text().splitlines()[:count]]


def measure(model: ChatLlamaCpp, path: str) -> None:
    """One response to each labelled question determines μ, σ and the gate (Algorithm 1)."""
    labelled = [(problem["question"], problem["answer"]) for problem in questions("calibration", 128)]
    calibration = calibrate(model, labelled, answer="boxed")
    save_calibration(calibration, path)
    print(f"{path}: {calibration.summary()}")


def serve(model: ChatLlamaCpp, path: str) -> None:
    """What an application does: load, and answer."""
    reasc = ReASCRunnable(model=model, calibration=path, answer="boxed")
    for problem in questions("test", 5):
        account = reasc.invoke(problem["question"]).response_metadata["reasc"]
        verdict = "right" if equivalent(account["answer"], problem["answer"]) else "wrong"
        print(f"{account['answer'] or '-':>6}  {verdict}  {account['samples']:2} samples, by {account['reason']}")


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
