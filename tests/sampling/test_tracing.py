"""Callbacks, tags and limits: each sample is a run of its own below the runnable's, and none stays open."""

import threading
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from runnable.fakes import TOP_K, Reply, Scripted, saying

from langchain_reasc import ReASCRunnable
from sampling.tracers import Runs


def test_cut_off_and_failed_samples_end_their_runs(runner: Any, runs: Runs) -> None:
    go = threading.Event()
    late = Reply("a", endless=True, opens=go, wait_at=1)
    model = saying("1", Reply("half", error=ConnectionError("down")), "1", "1", "1", late)
    reasc = ReASCRunnable(model=model, concurrency=6)
    runner.solve(reasc, "q", {"callbacks": [runs]}, on_response=lambda _, decision: decision.stop and go.set())
    ended = sorted(runs.ended[run_id] for run_id in runs.of("model"))
    assert ended == ["end"] * 5 + ["error"]


def test_a_failing_call_ends_its_runs(runner: Any, runs: Runs) -> None:
    with pytest.raises(Exception, match="all 4 samples failed"):
        runner.invoke(ReASCRunnable(model=saying(Reply("", error=ValueError("bad")))), "q", {"callbacks": [runs]})
    assert set(runs.ended.values()) == {"error"}


@pytest.mark.parametrize("calibrated", [None, "online", "mixture"])
def test_usage_handlers_add_up_to_the_bill(runner: Any, runs: Runs, calibrated: Any) -> None:
    usage = UsageMetadataCallbackHandler()
    model, measure = saying(*"1211111"), TOP_K if calibrated else None
    reasc = ReASCRunnable(model=model, concurrency=1, calibration=calibrated, measure=measure)
    messages = runner.batch(reasc, ["q", "r"], {"callbacks": [usage, runs]})
    [counted] = usage.usage_metadata.values()
    for part in ("input_tokens", "output_tokens", "total_tokens"):
        assert counted[part] == sum(message.usage_metadata[part] for message in messages)
    assert len(runs.of("model")) == sum(message.response_metadata["reasc"]["launched"] for message in messages)


def test_the_names_and_ids_of_a_batch_stay_with_its_chains(runner: Any, runs: Runs) -> None:
    ids = [uuid4(), uuid4()]
    configs = [{"callbacks": [runs], "run_name": f"input {at}", "run_id": run_id} for at, run_id in enumerate(ids)]
    runner.batch(ReASCRunnable(model=saying("1"), calibration="mixture", measure=TOP_K), ["q", "r"], configs)
    assert {run["parent_run_id"] for run in runs.of("model").values()} == set(ids)
    assert {run_id: run["name"] for run_id, run in runs.of("chain").items()} == {ids[0]: "input 0", ids[1]: "input 1"}
    assert not [run for run in runs.of("model").values() if str(run["name"]).startswith("input")]


def test_with_config_with_retry_and_with_fallbacks(runner: Any, runs: Runs) -> None:
    down, tries = threading.Event(), []

    def script(question: str, index: int) -> Reply:
        tries.append(index)
        return Reply("the answer is 1", error=None if down.is_set() or len(tries) > 4 else ConnectionError("down"))

    reasc = ReASCRunnable(model=Scripted(script=script))
    retried = reasc.with_config(tags=["mine"], callbacks=[runs]).with_retry(wait_exponential_jitter=False)
    assert runner.invoke(retried, "q").text == "the answer is 1"
    assert len(tries) == 8
    assert all("mine" in run["tags"] for run in runs.runs.values())

    broken = ReASCRunnable(model=saying(Reply("", error=ConnectionError("down"))))
    chain = broken.with_fallbacks([ReASCRunnable(model=saying("2"))]) | StrOutputParser()
    assert runner.invoke(chain, "q") == "the answer is 2"
