"""Crowds, crashes and carelessness: what is lost is what was given up, and nothing else."""

import gc
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_reasc_backend.bridge import End
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.engine import GenerationRequest
from langchain_reasc_llama_cpp.grammar import Grammar
from langchain_reasc_llama_cpp.sampling import SamplingParameters

from backends.llama_cpp.faces import output_tokens, resident, texts, wait_until, wait_until_decoding
from langchain_reasc.exceptions import ConfigurationError, ModelError

EXACT: dict[str, Any] = {"type_k": "f32", "type_v": "f32", "flash_attn": False}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.slow  # a load test
def test_a_thousand_requests_cancelled_at_random(endless_path: Path) -> None:
    """From 8 threads; nothing leaks, and those who stayed get the answers they would have had alone."""
    prompts = [f"question {number}: " + "why? " * (number % 7) for number in range(25)]
    with ChatLlamaCpp(model_path=endless_path, n_ctx=512, n_cells=1024, seed=1, max_tokens=12, **EXACT) as model:
        wanted = [texts(list(model.sample(prompt, n=2))) for prompt in prompts]
        wrong: list[tuple[int, Any]] = []
        stayed: list[int] = []

        def visit(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(125):
                number = rng.randrange(len(prompts))
                samples = model.sample(prompts[number], n=2)
                match rng.randrange(5):
                    case 0:
                        samples.cancel()
                    case 1:
                        next(samples)
                        samples.close()
                    case 2:
                        time.sleep(rng.random() / 500)
                        del samples
                    case _:
                        got = texts(list(samples))
                        stayed.append(number)
                        if got != wanted[number]:
                            wrong.append((number, got))

        def crowd(first: int) -> None:
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(visit, range(first, first + 8), timeout=120))

        crowd(0)
        assert len(stayed) > 200
        assert wrong == []
        gc.collect()
        before, threads = resident(), threading.active_count()
        crowd(100)
        assert wrong == []
        gc.collect()
        assert resident() - before < 8 << 20
        assert threading.active_count() == threads
        decoder = model.engine._worker._decoder
        wait_until(lambda: not decoder.busy)
        assert not decoder.busy
        assert len(decoder.prompts) <= 16
        decoder.prompts.swap_out()
        assert (decoder.cells.used, decoder.cells.sequences_left) == (0, 2 * 8 + 2)


def test_a_stream_nobody_reads_holds_up_nobody(endless: ChatLlamaCpp) -> None:
    unread = [endless.stream("hi", max_tokens=600) for _ in range(2)]
    for stream in unread:
        next(stream)
    unread_samples = endless.sample("ho", n=2, max_tokens=600)
    for _ in range(5):
        assert output_tokens(endless.invoke("me", max_tokens=5)) == 5
    wait_until(lambda: not endless.engine._worker._decoder.busy, 60)
    # All of it was generated, and waits to be read.
    assert len(list(unread_samples)) == 2
    assert {sum(1 for _ in stream) > 0 for stream in unread} == {True}


class Careless(BaseCallbackHandler):
    raise_error = True

    def on_llm_new_token(self, token: str, **kwargs: Any) -> None:
        raise RuntimeError("careless")


def test_an_exception_in_a_callback_is_the_callers_own(endless: ChatLlamaCpp) -> None:
    with pytest.raises(RuntimeError, match="careless"):
        for _ in endless.stream("hi", config={"callbacks": [Careless()]}, max_tokens=1900):
            pass
    gc.collect()
    before = endless.engine.context.decoded
    endless.invoke("hi", max_tokens=3)
    assert endless.engine.context.decoded - before < 100  # the other was let go


def request(prompt: list[int], events: list[Any], **options: Any) -> GenerationRequest:
    return GenerationRequest(
        prompt=np.array(prompt, dtype=np.int32),
        samples=range(1),
        seed=0,
        sampling=SamplingParameters(),
        max_tokens=4,
        emit=events.append,
        **options,
    )


@pytest.mark.parametrize(
    ("prompt", "says"),
    [([], "no tokens"), ([1, 259, 3], "token 259, but the vocabulary ends at 258"), ([-1], "token -1")],
)
def test_tokens_that_are_none_are_refused(tiny: ChatLlamaCpp, prompt: list[int], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        tiny.engine.submit(request(prompt, []))
    assert isinstance(tiny.invoke("hi"), AIMessage)


def test_a_request_that_cannot_begin_fails_alone(endless: ChatLlamaCpp) -> None:
    events: list[Any] = []
    with endless.sample("hi", n=3, max_tokens=300) as running:
        wait_until_decoding(endless)
        endless.engine.submit(request([1, 2, 3], events, grammar=Grammar(gbnf="root ::= (")))
        assert {message.response_metadata["finish_reason"] for _, message in running} == {"length"}
    [failed] = events
    assert isinstance(failed.error, ConfigurationError)


def test_a_failing_decode_ends_what_ran_and_what_waits_goes_on(
    endless_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=2048, n_parallel=1) as model:
        running = model.sample("hi", n=4, max_tokens=1900)
        wait_until_decoding(model)
        waiting = model.sample("ho", n=1, max_tokens=5)

        def broken(*_: Any) -> Any:
            monkeypatch.undo()
            raise OSError("the card fell out")

        monkeypatch.setattr(model.engine.context, "decode", broken)
        with pytest.raises(ModelError, match="the card fell out"):
            list(running)
        assert len(list(waiting)) == 1
        assert len(list(model.sample("hi", n=4, max_tokens=5))) == 4


def test_events_end_with_one_last_word(tiny: ChatLlamaCpp) -> None:
    events: list[Any] = []
    tiny.engine.submit(request([1, 2, 3], events))
    wait_until(lambda: events and isinstance(events[-1], End))
    assert [isinstance(event, End) for event in events] == [False] * (len(events) - 1) + [True]


@pytest.mark.slow  # processes that load a model and are killed
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_in_the_middle_of_decoding(endless_path: Path) -> None:
    """Nothing is left behind: the file is only read, and no other process is involved."""
    script = """
import sys
from langchain_reasc_backend.bridge import End
from langchain_reasc_llama_cpp import ChatLlamaCpp
model = ChatLlamaCpp(model_path=sys.argv[1], n_ctx=100_000, signals=())
samples = model.sample("hi", n=8)
while model.engine.context.decoded < 100:
    pass
print("decoding", flush=True)
next(samples)
"""
    before = endless_path.read_bytes()
    for number in (signal.SIGKILL, signal.SIGTERM):
        command = [sys.executable, "-c", script, str(endless_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "decoding\n"
            process.send_signal(number)
            assert process.wait(timeout=20) == -number
            assert process.stderr.read() == ""
    assert endless_path.read_bytes() == before
    with ChatLlamaCpp(model_path=endless_path) as model:
        model.invoke("hi", max_tokens=2)
