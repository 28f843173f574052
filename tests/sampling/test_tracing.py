"""Callbacks, tags and limits: each sample is a run of its own below the runnable's, and none stays open."""

import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from runnable.fakes import TOP_K, Reply, Scripted, saying

from langchain_reasc import ReASCRunnable
from sampling.tracers import Runs


def test_each_sample_is_one_run_below_the_runnable(runner: Any, runs: Runs) -> None:
    run_id = uuid4()
    config = {"callbacks": [runs], "tags": ["mine"], "metadata": {"user": 7}, "run_name": "arithmetic"}
    runner.invoke(ReASCRunnable(model=saying("1")), "q", config | {"run_id": run_id})
    [(above, chain)] = runs.of("chain").items()
    assert (above, chain["name"], chain["parent_run_id"]) == (run_id, "arithmetic", None)
    samples = runs.of("model").values()
    assert [run["parent_run_id"] for run in samples] == [above] * 4
    assert sorted(tag for run in samples for tag in run["tags"] if tag.startswith("reasc:sample:")) == [
        f"reasc:sample:{index}" for index in range(4)
    ]
    for run in samples:
        assert {"mine", "nostream"} <= set(run["tags"])
        assert run["metadata"]["user"] == 7
        assert run["name"] != "arithmetic"


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


def test_bound_arguments_reach_the_model(runner: Any) -> None:
    model = saying("1")
    runner.invoke(ReASCRunnable(model=model).bind(stop=["END"], flavour="x"), "q", top_p=0.5)
    assert {(kw["stop"][0], kw["flavour"], kw["top_p"]) for kw in model.log.kwargs} == {("END", "x", 0.5)}


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


def test_events_show_the_samples_below_the_runnable() -> None:
    async def events() -> list[Any]:
        stream = ReASCRunnable(model=saying("1")).astream_events("q", version="v2")
        return [event async for event in stream]

    seen = asyncio.run(events())
    [top] = [event["run_id"] for event in seen if event["event"] == "on_chain_start"]
    for kind in ("on_chat_model_start", "on_chat_model_end"):
        inner = [event for event in seen if event["event"] == kind]
        assert [event["parent_ids"] for event in inner] == [[top]] * 4
    assert seen[-1]["data"]["output"].response_metadata["reasc"]["answer"] == "1"
