"""Other real servers: what each supports, whether its confidence is ours, and what ReASC decides through it.

    python -m benchmarks.other_servers                           # llama-cpp-python's own server, with the shipped model
    python -m benchmarks.other_servers --url http://localhost:8000/v1 --model Qwen/Qwen2.5-0.5B-Instruct

The first needs ``pip install 'llama-cpp-python[server]'``. A server named by ``--url`` runs a model of its own, so that
there is nothing to compare its confidence with.
"""

import argparse
import importlib.util
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from statistics import fmean
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from langchain_reasc_openai import ChatOpenAICompatible

from benchmarks.settings import shipped_questions
from langchain_reasc import Measure, ReASCError, ReASCRunnable
from tests.servers.llama_server import running_server

_ALTERNATIVES: Final = 20
_COMPARED: Final = 6  # questions
_DECIDED: Final = 8


@contextmanager
def llama_cpp_server() -> Iterator[str]:
    """llama-cpp-python's server with the shipped model, which answers one request at a time; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Without logits_all it returns no logprobs; with interrupt_requests (its default) each request cuts off the last.
    options = {
        "model": embedded_model_path(),
        "model_alias": "word-problems",
        "logits_all": True,
        "interrupt_requests": False,
        "n_ctx": 1024,
        "n_threads": 1,
        "host": "127.0.0.1",
        "port": port,
    }
    command = [sys.executable, "-m", "llama_cpp.server", *(f"--{name}={value}" for name, value in options.items())]
    url = f"http://127.0.0.1:{port}/v1"
    with running_server(command, f"{url}/models"):
        yield url


def compare(model: ChatOpenAICompatible) -> None:
    """Greedy answers of the server and of the engine in this process, token by token."""
    wanted = {"temperature": 0.0, "logprobs": True, "top_logprobs": _ALTERNATIVES}
    # llama-cpp-python's server penalizes repetition unless told otherwise.
    greedy = model.model_copy(update={**wanted, "streaming": True, "repetition_penalty": 1.0})
    same, apart, fewer = 0, [], 0
    with ChatLlamaCpp(seed=1, **wanted) as engine:
        for question in shipped_questions(_COMPARED):
            theirs, ours = greedy.invoke(question), engine.invoke(question)
            same += theirs.text == ours.text
            for one, other in takewhile(lambda pair: pair[0]["token"] == pair[1]["token"], _tokens(theirs, ours)):
                if len(one["top_logprobs"]) == len(other["top_logprobs"]) == _ALTERNATIVES:
                    apart.append(abs(_top_k(one) - _top_k(other)))
                else:
                    fewer += 1
    print(f"greedy answers that are the same: {same} of {_COMPARED}")
    print(f"top_k of {len(apart)} tokens of the same beginnings differs by at most {max(apart, default=0.0):.2g}")
    print(f"tokens there with fewer than {_ALTERNATIVES} alternatives: {fewer}")


def decide(model: ChatOpenAICompatible) -> None:
    """ReASC over the server: online calibration, concurrent samples, the rest cut off."""
    measure = Measure("top_k", "bottom_group", window=16)
    reasc = ReASCRunnable(model=model, calibration="mixture", measure=measure, max_samples=8)
    begun = time.perf_counter()
    messages = reasc.batch([*shipped_questions(_DECIDED)], {"max_concurrency": 2})
    took = time.perf_counter() - begun
    for message in messages:
        account: dict[str, Any] = message.response_metadata["reasc"]
        counts = f"{account['samples']:2} samples, {account['failed']} failed, by {account['reason']}"
        print(f"  {account['answer'] or '-':>6}  {counts}")
    spent = sum(message.usage_metadata["output_tokens"] for message in messages if message.usage_metadata)
    print(f"{_DECIDED} questions, {spent:,} tokens, {took:.1f} s")


def _top_k(token: dict[str, Any]) -> float:
    return -fmean(other["logprob"] for other in token["top_logprobs"])


def _tokens(*messages: AIMessage) -> Iterator[tuple[dict[str, Any], ...]]:
    return zip(*(message.response_metadata["logprobs"]["content"] for message in messages), strict=False)


def _measure(url: str, name: str, *, ours: bool) -> None:
    with ChatOpenAICompatible(base_url=url, model=name, temperature=1.0, max_tokens=256, seed=1) as model:
        for field, value in model.capabilities():
            print(f"  {field}: {value}")
        if ours:
            compare(model)
        decide(model)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", help="base URL of a running server")
    options.add_argument("--model", help="the model's name there")
    given = options.parse_args()
    if given.url:
        if not given.model:
            options.error("--url goes with --model")
        _measure(given.url, given.model, ours=False)
    elif importlib.util.find_spec("sse_starlette") is None:
        options.error("llama-cpp-python's server is not installed: pip install 'llama-cpp-python[server]'")
    else:
        with llama_cpp_server() as url:
            _measure(url, "word-problems", ours=True)


if __name__ == "__main__":
    try:
        main()
    except (ReASCError, RuntimeError) as error:
        sys.exit(f"error: {error}")
