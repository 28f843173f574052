"""Sampling options of the model and of a call: they reach the draws, come from the GGUF, and are checked."""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.sampling import DEFAULTS, SamplingFields, SamplingParameters

from backends.llama_cpp.tiny_gguf import write_tiny_model
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.fingerprint import Fingerprint

FOUR = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}

EVERYTHING: dict[str, Any] = {
    **{"temperature": 0.7, "dynatemp_range": 0.2, "dynatemp_exponent": 1.5, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
    **{"typical_p": 0.9, "top_n_sigma": 3.0, "xtc_probability": 0.3, "xtc_threshold": 0.2, "repeat_penalty": 1.1},
    **{"repeat_last_n": 32, "frequency_penalty": 0.1, "presence_penalty": 0.2, "dry_multiplier": 0.8, "dry_base": 2.0},
    **{"dry_allowed_length": 3, "dry_penalty_last_n": -1, "dry_sequence_breakers": ("\n", ".")},
    "logit_bias": {65: 2.0},
}


def sampling(model: ChatLlamaCpp, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = model.calibration_fingerprint(**options)["sampling"]
    return found


def test_everything_at_once(endless: ChatLlamaCpp) -> None:
    options = {"max_tokens": 40, "seed": 5, **EVERYTHING}
    first = endless.invoke("hello", **options)
    assert first.content == endless.invoke("hello", **options).content
    assert first.content != endless.invoke("hello", max_tokens=40, seed=5).content
    assert set(EVERYTHING) == set(DEFAULTS) - {"mirostat", "mirostat_tau", "mirostat_eta"}
    assert endless.invoke("hello", max_tokens=40, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.2).content


def test_each_parameter_has_a_field_and_the_other_way_round() -> None:
    assert set(SamplingFields.model_fields) - {"seed"} == set(DEFAULTS)
    assert SamplingFields().sampling({}) == SamplingParameters()


def test_the_models_own_options_count_and_a_calls_override_them(endless_path: Path) -> None:
    with ChatLlamaCpp(model_path=endless_path, seed=2, max_tokens=20, logit_bias={65: 100.0}) as model:
        assert model.invoke("hello").content == "A" * 20
        assert model.invoke("hello", logit_bias={"66": 200.0}).content == "B" * 20
        assert model.bind(logit_bias={}).invoke("hello").content != "A" * 20
        again = pickle.loads(pickle.dumps(model))
        assert again.logit_bias == {65: 100.0}
        again.close()


def test_what_the_gguf_recommends(tmp_path: Path) -> None:
    recommended: dict[str, float | int | str] = {
        **{"general.sampling.temp": 0.6, "general.sampling.top_k": 12, "general.sampling.xtc_probability": 0.25},
        **{"general.sampling.xtc_threshold": 0.125, "general.sampling.penalty_last_n": 16},
        **{"general.sampling.penalty_repeat": 1.5, "reasc.sampling.typical_p": 0.5, "reasc.sampling.temperature": 0.25},
    }
    path = write_tiny_model(tmp_path / "own.gguf", metadata=recommended)
    with ChatLlamaCpp(model_path=path) as model:
        expected = FOUR | {"temperature": 0.25, "top_k": 12, "typical_p": 0.5}
        expected |= {"xtc_probability": 0.25, "xtc_threshold": 0.125, "repeat_penalty": 1.5, "repeat_last_n": 16}
        expected |= {"frequency_penalty": 0.0, "presence_penalty": 0.0}
        assert sampling(model) == expected
        assert sampling(model, typical_p=1, xtc_probability=0, repeat_penalty=1, temperature=0.8, top_k=40) == FOUR
        # Mirostat, asked for, does without what the GGUF recommends and it replaces.
        assert sampling(model, mirostat=2)["mirostat"] == 2
        assert "typical_p" not in sampling(model, mirostat=2)


def test_what_the_gguf_recommends_can_be_wrong_and_mirostat_gives_way(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "wrong.gguf", metadata={"general.sampling.top_p": "high"})
    with pytest.raises(ConfigurationError, match=r"GGUF .*top_p: .*got 'high'"):
        ChatLlamaCpp(model_path=path)
    with ChatLlamaCpp(model_path=path, top_p=0.5) as model:
        assert sampling(model)["top_p"] == 0.5
    metadata = {"general.sampling.mirostat": 2}
    assert SamplingFields().sampling(metadata).mirostat == 2
    assert SamplingFields(typical_p=0.5).sampling(metadata).mirostat == 0
    for name in DEFAULTS.keys() - {"logit_bias", "dry_sequence_breakers"}:
        for nonsense in (math.nan, "much", -math.inf):
            with pytest.raises(ConfigurationError, match=rf"GGUF .*: {name}: .*, got {nonsense!r}"):
                SamplingFields().sampling({f"reasc.sampling.{name}": nonsense})


def test_a_fingerprint_holds_what_has_an_effect(tiny: ChatLlamaCpp) -> None:
    assert sampling(tiny) == FOUR
    idle = {"repeat_last_n": 7, "dry_base": 3.0, "xtc_threshold": 0.3, "mirostat_tau": 1.0, "dynatemp_exponent": 2.0}
    assert sampling(tiny, **idle, top_n_sigma=-1, repeat_penalty=1.0, xtc_probability=0.0) == FOUR
    full = sampling(tiny, **EVERYTHING)
    assert set(full) == set(EVERYTHING)
    assert full["logit_bias"] == "65:2"
    stored = Fingerprint(sampling=full).model_dump_json()
    assert json.loads(stored)["sampling"] == full
    assert sampling(tiny, logit_bias={5: False, 3: 1.5})["logit_bias"] == "3:1.5 5:-inf"


THEIRS = {"n_predict": "max_tokens", "repetition_penalty": "repeat_penalty", "mirostat_mode": "mirostat"}
THEIRS |= {"stop_sequences": "stop", "temprature": "temperature"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -1}, "temperature: .*got -1"),
        ({"temperature": math.nan}, "temperature: .*got nan"),
        ({"top_k": 1.5}, "top_k: .*integer.*got 1.5"),
        ({"top_p": 0}, "top_p: .*got 0"),
        ({"min_p": 1}, "min_p: .*got 1"),
        ({"top_n_sigma": -2}, r"top_n_sigma: .*got -2"),
        ({"xtc_probability": 2}, "xtc_probability: .*got 2"),
        ({"repeat_penalty": 0}, "repeat_penalty: .*got 0"),
        ({"repeat_last_n": 1 << 40}, "repeat_last_n: .*1048576"),
        ({"presence_penalty": 1e7}, "presence_penalty: .*1000000"),
        ({"dry_base": 0.5}, "dry_base: .*1, got 0.5"),
        ({"dry_sequence_breakers": ("\n", "")}, r"dry_sequence_breakers\[1\]: .*40 bytes"),
        ({"dry_sequence_breakers": ("ü" * 21,)}, r"dry_sequence_breakers\[0\]: .*40 bytes.*got 'ü"),
        ({"mirostat": 3}, "mirostat: .*got 3"),
        (
            {"mirostat": 1, "typical_p": 0.5},
            "mirostat=1 .*typical_p=0.5.*typical_p=1",
        ),
        ({"logit_bias": {259: 1}}, "token 259.*258"),
        ({"logit_bias": {-1: 1}}, "logit_bias.-1"),
        ({"logit_bias": {5: math.nan}}, "logit_bias.*got.*nan"),
        ({"logit_bias": {5: -1e7}}, "logit_bias.5.: .*-1e.06"),
        ({"logit_bias": {5: 1e7}}, "logit_bias.5.: .*1000000"),
        ({"logit_bias": {5: True}}, "logit_bias.*False.*got True"),
        ({"logit_bias": {"cat": 1}}, "logit_bias.cat.*integer"),
        ({"top_logprobs": 21}, "top_logprobs: .*20, got 21"),
        ({"max_tokens": 0}, "max_tokens: .*got 0"),
        ({"signals": ("entropy",)}, "unknown signal 'entropy'"),
        ({"stop": ["ok", ""]}, "stop string"),
        ({"seed": -1}, "seed: .*got -1"),
        *(({theirs: 1}, f"'{theirs}'; did you mean '{ours}'") for theirs, ours in THEIRS.items()),
    ],
)
def test_wrong_values(tiny: ChatLlamaCpp, tiny_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        tiny.invoke("hi", **options)
    with pytest.raises(ConfigurationError, match=says):
        ChatLlamaCpp(model_path=tiny_path, **options)


def test_how_logprobs_are_asked_for(tiny: ChatLlamaCpp) -> None:
    def alternatives(**options: Any) -> int | None:
        return tiny.call_options(options).alternatives

    assert alternatives() is None
    assert alternatives(logprobs=True) == 0
    assert alternatives(top_logprobs=0) == 0
    assert alternatives(top_logprobs=5) == alternatives(logprobs=True, top_logprobs=5) == 5
