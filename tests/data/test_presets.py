"""Presets: what they ask, that their answers are found, and whose sampling is whose."""

import pytest

from langchain_reasc.answers import extractor
from langchain_reasc.data.presets import PRESETS, preset_of, sampling_of
from langchain_reasc.exceptions import ConfigurationError

SAID = {
    "number": [("So it is 12 - 5.\n\\boxed{7}", "7"), ("The answer is \\boxed{1{,}400} rolls.", "1400")],
    "maths": [(r"Hence $\boxed{\frac{6}{10}}$.", "0.6"), (r"\boxed{(2, \frac{\pi}{2})}", "(2,pi/2)")],
    "letter": [("It melts late. A is wrong.\n\nAnswer: C", "c"), ("**Answer: (B)** Nickel", "b"), ("\\boxed{D}", "d")],
    "yes-no": [
        ("A year has 365 days.\n\\boxed{yes}", "yes"),
        (r"\boxed{\text{No}}", "no"),
        ("The answer is no.", "no"),
    ],
    "letters": [("a, d, r: \\boxed{adr}", "adr"), (r"So \boxed{\text{Étar}}", "étar"), ('The answer is "adr".', "adr")],
    "short": [("\\boxed{Berlin}", "berlin"), (r"In \boxed{\text{3 May 1931}}.", "3 may 1931")],
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_answer_asked_for_is_the_answer_found(name: str) -> None:
    preset = preset_of(name)
    [message] = preset.template.messages("What is {x}?")
    assert str(message.content).startswith("What is {x}?\n\n")
    find = extractor(preset.answer)
    assert [find(said) for said, _ in SAID[name]] == [answer for _, answer in SAID[name]]
    unfinished = SAID[name][0][0].rpartition("\\boxed" if name != "letter" else "Answer")[0]
    assert find.from_cut_off(unfinished) is None


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("meta-llama/Llama-3.2-3B-Instruct", "LLaMA-3.2"),
        ("llama3.2:3b", "LLaMA-3.2"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen-2.5"),
        ("/models/qwen2.5-3b-instruct-q4_k_m.gguf", "Qwen-2.5"),
        ("hf:Qwen/Qwen2.5-3B-Instruct-GGUF/qwen2_5-3b.gguf", "Qwen-2.5"),
        ("google/gemma-3-4b-it", "Gemma-3"),
        ("gemma3:12b", "Gemma-3"),
        ("C:\\models\\Gemma_3.gguf", "Gemma-3"),
        ("gemma-3n-e4b", None),
        ("gemma-30b", None),
        ("Llama-3.1-8B", None),
        ("llama-3-2b", None),
        ("us.meta.llama3-2-3b-instruct", "LLaMA-3.2"),
        ("gemma-3.5", None),
        ("Qwen3-8B", None),
        ("Qwen2-57B", None),
        ("qwen2.5/mistral.gguf", None),
        (None, None),
        ("", None),
    ],
)
def test_a_family_is_known_by_the_models_name(model: str | None, family: str | None) -> None:
    found = sampling_of(model)
    assert (found and found.family) == family


def test_the_sampling_is_the_papers() -> None:
    llama, qwen, gemma = (sampling_of(model) for model in ("llama-3.2", "qwen2.5", "gemma-3"))
    assert llama and qwen and gemma
    assert llama.parameters == {"temperature": 0.6, "top_p": 0.9}
    assert qwen.parameters == {"temperature": 0.7, "top_p": 0.8, "top_k": 20}
    assert gemma.parameters == {"temperature": 1.0, "top_p": 0.95, "top_k": 64}


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(ConfigurationError, match="unknown preset 'essay'; choose auto, number, maths"):
        preset_of("essay")
