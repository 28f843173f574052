"""How many parameters a model has, from what a pool says of it."""

from typing import Any

import pytest
from langchain_reasc_lab.report import parameters_of

NAMES: dict[Any, float | None] = {
    "Qwen2.5-7B-Instruct": 7e9,
    "Qwen/Qwen2.5-0.5B-Instruct-GGUF": 0.5e9,
    "meta-llama/Llama-3.2-3B": 3e9,
    "gemma-3-27b-it-Q4_K_M.gguf": 27e9,
    "SmolLM2-135M": 135e6,
    "Qwen3-30B-A3B": 3e9,
    **dict.fromkeys(["gpt-4o", "Mixtral-8x7B-Instruct", "phi-3-mini-128k", "model-4bit", "v2.5"]),
    **dict.fromkeys(["word_problems.gguf", None, 7]),
}
NO_NUMBERS = [None, 0, -1, True, "7B", float("nan"), float("inf")]


@pytest.mark.parametrize(
    ("metadata", "count", "source"),
    [
        *(
            ({"fingerprint": {"model": name}}, count, f"name of the model, {name}, says")
            for name, count in NAMES.items()
        ),
        ({"parameters": 1_234, "fingerprint": {"model": "some-7B"}}, 1234.0, "as the pool says"),
        *(({"parameters": told}, None, "") for told in NO_NUMBERS),
        *((metadata, None, "") for metadata in ({}, {"fingerprint": None}, {"fingerprint": "7B"}, {"fingerprint": {}})),
    ],
)
def test_a_pool_tells_the_number_or_the_name_of_its_model_does(
    metadata: dict[str, Any], count: float | None, source: str
) -> None:
    found = parameters_of(metadata)
    assert (found and found.count) == count and (found is None or found.source.endswith(source))
