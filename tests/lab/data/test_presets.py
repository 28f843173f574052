"""Presets: what they ask, that the answer is found, and whose sampling is whose."""

import pytest
from langchain_reasc_lab.data import PRESETS, preset_of, sampling_of

from langchain_reasc.answers import extractor

SAID = {
    "number": {"So it is 12 - 5.\n\\boxed{7}": "7", "The answer is \\boxed{1{,}400} rolls.": "1400"},
    "maths": {r"Hence $\boxed{\frac{6}{10}}$.": "0.6", r"\boxed{(2, \frac{\pi}{2})}": "(2,pi/2)"},
    "letter": {"It melts late. A is wrong.\n\nAnswer: C": "c", "**Answer: (B)** Nickel": "b"},
    "yes-no": {"A year has 365 days.\n\\boxed{yes}": "yes", r"\boxed{\text{No}}": "no"},
    "letters": {"a, d, r: \\boxed{adr}": "adr", r"So \boxed{\text{Étar}}": "Étar"},
    "short": {"\\boxed{Berlin}": "Berlin", r"In \boxed{\text{3 May 1931}}.": "1931-05-03"},
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_answer_asked_for_is_the_answer_found(name: str) -> None:
    preset = preset_of(name)
    [message] = preset.template.messages("What is {x}?")
    assert str(message.content).startswith("What is {x}?\n\n")
    find = extractor(preset.answer)
    assert {said: find(said) for said in SAID[name]} == SAID[name]
    unfinished = next(iter(SAID[name])).rpartition("\\boxed" if name != "letter" else "Answer")[0]
    assert find(unfinished, cut_off=True) is None


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("LLaMA-3.2", "meta-llama/Llama-3.2-3B-Instruct llama3.2:3b us.meta.llama3-2-3b-instruct"),
        ("Qwen-2.5", "Qwen/Qwen2.5-7B-Instruct /models/qwen2.5-3b-q4_k_m.gguf hf:Qwen/Qwen2.5-3B-GGUF/qwen2_5-3b.gguf"),
        ("Gemma-3", "google/gemma-3-4b-it gemma3:12b C:\\models\\Gemma_3.gguf"),
        (None, "gemma-3n-e4b gemma-30b Llama-3.1-8B llama-3-2b gemma-3.5 Qwen3-8B Qwen2-57B qwen2.5/mistral.gguf"),
    ],
)
def test_a_family_is_known_by_the_models_name(family: str | None, names: str) -> None:
    for name in names.split():
        found = sampling_of(name)
        assert (found and found.family) == family, name
    assert sampling_of(None) is sampling_of("") is None


def test_the_sampling_is_the_papers() -> None:
    llama, qwen, gemma = (sampling_of(model) for model in ("llama-3.2", "qwen2.5", "gemma-3"))
    assert llama and qwen and gemma
    assert llama.parameters == {"temperature": 0.6, "top_p": 0.9}
    assert qwen.parameters == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    assert gemma.parameters == {"temperature": 1.0, "top_p": 0.95, "top_k": 64}
