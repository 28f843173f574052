"""How many parameters a model has, from what a pool says of it."""

from typing import Any

import pytest
from langchain_reasc_lab.report.study import Parameters, parameters_of


def _named(name: object) -> dict[str, Any]:
    return {"fingerprint": {"model": name}}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Qwen2.5-7B-Instruct", 7e9),
        ("Qwen/Qwen2.5-0.5B-Instruct-GGUF", 0.5e9),
        ("meta-llama/Llama-3.2-3B", 3e9),
        ("gemma-3-27b-it-Q4_K_M.gguf", 27e9),
        ("SmolLM2-135M", 135e6),
        ("Qwen3-30B-A3B", 3e9),
    ],
)
def test_a_name_may_tell(name: str, count: float) -> None:
    found = parameters_of(_named(name))
    assert found == Parameters(count, f"as the name of the model, {name}, says")


@pytest.mark.parametrize(
    "name", ["gpt-4o", "Mixtral-8x7B-Instruct", "phi-3-mini-128k", "model-4bit", "v2.5", "word_problems.gguf", None, 7]
)
def test_other_names_do_not(name: object) -> None:
    assert parameters_of(_named(name)) is None


def test_a_recorded_number_comes_first() -> None:
    assert parameters_of({"parameters": 1_234, **_named("some-7B")}) == Parameters(1234.0, "as the pool says")


@pytest.mark.parametrize("told", [None, 0, -1, True, "7B", float("nan"), float("inf")])
def test_what_is_no_number_of_parameters_is_not_taken_for_one(told: object) -> None:
    assert parameters_of({"parameters": told}) is None


@pytest.mark.parametrize("metadata", [{}, {"fingerprint": None}, {"fingerprint": "7B"}, {"fingerprint": {}}])
def test_metadata_may_say_nothing(metadata: dict[str, Any]) -> None:
    assert parameters_of(metadata) is None
