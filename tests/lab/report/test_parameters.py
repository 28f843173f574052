"""How many parameters a model has, from what a pool says of it."""

from typing import Any

from langchain_reasc_lab.report import parameters_of

NAMES: dict[Any, float | None] = {
    "Qwen2.5-7B-Instruct": 7e9,
    "Qwen/Qwen2.5-0.5B-Instruct-GGUF": 0.5e9,
    "meta-llama/Llama-3.2-3B": 3e9,
    "gemma-3-27b-it-Q4_K_M.gguf": 27e9,
    "SmolLM2-135M": 135e6,
    "Qwen3-30B-A3B": 3e9,
    **dict.fromkeys(["gpt-4o", "Mixtral-8x7B-Instruct", "phi-3-mini-128k", "model-4bit", "v2.5", None]),
}
UNKNOWN = [{}, {"fingerprint": None}, *({"parameters": one} for one in (0, -1, True, "7B", float("nan"), float("inf")))]


def test_a_pool_says_the_number_or_the_name_of_its_model_does() -> None:
    for name, count in NAMES.items():
        found = parameters_of({"fingerprint": {"model": name}})
        assert (found and found.count) == count, name
        assert found is None or found.source.endswith(f"name of the model, {name}, says")
    said = parameters_of({"parameters": 1_234, "fingerprint": {"model": "some-7B"}})
    assert said is not None and (said.count, said.source) == (1234.0, "as the pool says")
    assert [parameters_of(metadata) for metadata in UNKNOWN] == [None] * len(UNKNOWN)
