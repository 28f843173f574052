"""Callbacks, tags and limits: each sample is a run of its own below the runnable's, and none stays open."""

from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from runnable.fakes import TOP_K, saying

from langchain_reasc import ReASCRunnable
from sampling.tracers import Runs


@pytest.mark.parametrize("calibrated", [None, "online", "mixture"])
def test_usage_handlers_add_up_to_the_bill(runner: Any, runs: Runs, calibrated: Any) -> None:
    usage = UsageMetadataCallbackHandler()
    model, measure = saying(*"1211111"), TOP_K if calibrated else None
    reasc = ReASCRunnable(model=model, concurrency=1, calibration=calibrated, confidence=measure)
    messages = runner.batch(reasc, ["q", "r"], {"callbacks": [usage, runs]})
    [counted] = usage.usage_metadata.values()
    for part in ("input_tokens", "output_tokens", "total_tokens"):
        assert counted[part] == sum(message.usage_metadata[part] for message in messages)
    assert len(runs.of("model")) == sum(message.response_metadata["reasc"]["launched"] for message in messages)


def test_the_names_and_ids_of_a_batch_stay_with_its_chains(runner: Any, runs: Runs) -> None:
    ids = [uuid4(), uuid4()]
    configs = [{"callbacks": [runs], "run_name": f"input {at}", "run_id": run_id} for at, run_id in enumerate(ids)]
    runner.batch(ReASCRunnable(model=saying("1"), calibration="mixture", confidence=TOP_K), ["q", "r"], configs)
    assert {run["parent_run_id"] for run in runs.of("model").values()} == set(ids)
    assert {run_id: run["name"] for run_id, run in runs.of("chain").items()} == {ids[0]: "input 0", ids[1]: "input 1"}
    assert not [run for run in runs.of("model").values() if str(run["name"]).startswith("input")]
