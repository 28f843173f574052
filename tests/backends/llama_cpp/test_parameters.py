"""Model and context parameters reach llama.cpp, and the model still answers; wrong ones are refused in clear words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.native import LoadFields, fill_context_params, fill_model_params, library

from langchain_reasc.exceptions import ConfigurationError, ModelError, ModelFileError

QUESTION = "Kira has 7 roses and buys 12 more. How many roses does Kira have?"
LIKELY: dict[str, Any] = {"temperature": 0.0, "seed": 1}


@pytest.fixture(scope="module")
def answer(shipped: ChatLlamaCpp) -> str:
    return str(shipped.invoke(QUESTION, temperature=0).content)


@pytest.mark.parametrize(
    ("options", "logged"),
    [
        ({"type_k": "q8_0", "type_v": "q5_1"}, ["K (q8_0)", "V (q5_1)"]),
        ({"type_k": "bf16", "type_v": "f32", "flash_attn": False}, ["K (bf16)", "V (f32)"]),
        ({"rope_scaling_type": "yarn", "rope_freq_scale": 0.5, "yarn_orig_ctx": 600}, ["n_ctx_train adjusted to 1200"]),
        ({"use_mmap": False, "use_mlock": True}, ["load_mode = mlock"]),
        (
            {"kv_overrides": {"general.name": "Hugo", "llama.context_length": 512}},
            ["= Hugo", "n_ctx_train           = 512"],
        ),
    ],
)
def test_what_llama_cpp_logs(capsys: pytest.CaptureFixture[str], options: dict[str, Any], logged: list[str]) -> None:
    with ChatLlamaCpp(verbose=True, **LIKELY, **options) as model:
        assert "boxed" in str(model.invoke(QUESTION).content)
    log = capsys.readouterr().err
    for line in logged:
        assert line in log


@pytest.mark.parametrize(
    "options",
    [
        {"n_gpu_layers": 1000, "main_gpu": 0, "split_mode": "none"},
        {"offload_kqv": False, "op_offload": False, "swa_full": False},
        {"n_ctx": 300, "n_batch": 20},
    ],
)
def test_what_changes_no_answer(answer: str, options: dict[str, Any]) -> None:
    with ChatLlamaCpp(**LIKELY, **options) as model:
        assert model.invoke(QUESTION).content == answer
        assert set(model.calibration_fingerprint()["sampling"]) == {"temperature", "top_k", "top_p", "min_p"}


@pytest.mark.parametrize(
    "options",
    [
        {"rope_freq_base": 50.0},
        {"yarn_ext_factor": 1.0, "rope_freq_scale": 0.2, "yarn_beta_fast": 0.01, "yarn_beta_slow": 0.001},
    ],
)
def test_positions_shape_the_distribution(shipped: ChatLlamaCpp, options: dict[str, Any]) -> None:
    def signals(model: ChatLlamaCpp) -> list[float]:
        message = model.invoke(QUESTION, temperature=0, max_tokens=8)
        return list(message.response_metadata["token_signals"]["self_certainty"])

    with ChatLlamaCpp(**LIKELY, **options) as model:
        assert signals(model) != signals(shipped)
        assert options.items() <= model.calibration_fingerprint()["sampling"].items()


def bytes_of(struct: Any, name: str) -> bytes:
    field = getattr(type(struct), name)
    return bytes(memoryview(struct).cast("B")[field.offset : field.offset + field.size])


def changed(defaults: Callable[[], Any], written: Any) -> set[str]:
    """The fields of a struct that differ from llama.cpp's defaults."""
    untouched = defaults()
    return {name for name, _ in untouched._fields_ if bytes_of(untouched, name) != bytes_of(written, name)}


def test_every_context_field_is_written_and_what_is_not_given_is_left() -> None:
    llama = library()
    written = llama.llama_context_default_params()
    threads = written.n_threads
    fill_context_params(written, LoadFields(), n_threads=threads, on_gpu=True)
    assert changed(llama.llama_context_default_params, written) <= {"n_batch", "n_threads_batch"}
    given: dict[str, Any] = {
        **{"n_batch": 96, "n_ubatch": 32, "n_threads": 3, "n_threads_batch": 5, "swa_full": False},
        **{"rope_freq_base": 5.0, "rope_freq_scale": 0.5, "yarn_ext_factor": 0.25, "yarn_attn_factor": 2.0},
        **{"yarn_beta_fast": 30.0, "yarn_beta_slow": 1.5, "yarn_orig_ctx": 77},
        **{"offload_kqv": False, "op_offload": False},
    }
    names = {"flash_attn": True, "type_k": "q4_1", "type_v": "iq4_nl", "rope_scaling_type": "longrope"}
    fill_context_params(written, LoadFields(**given, **names), n_threads=1, on_gpu=False)
    assert {name: getattr(written, name) for name in given} == given
    assert (written.flash_attn_type, written.rope_scaling_type) == (1, llama.LLAMA_ROPE_SCALING_TYPE_LONGROPE)
    assert (written.type_k, written.type_v) == (llama.GGML_TYPE_Q4_1, llama.GGML_TYPE_IQ4_NL)


def test_every_model_field_is_written_and_what_is_not_given_is_left() -> None:
    llama = library()
    written = llama.llama_model_default_params()
    assert fill_model_params(llama, written, LoadFields(), {}, repack=True) == []
    assert changed(llama.llama_model_default_params, written) == {"n_gpu_layers"}
    overrides = {"a": True, "b": -3, "c": 0.5, "d": "text"}
    given: dict[str, Any] = {"n_gpu_layers": 12, "main_gpu": 1, "check_tensors": True, "use_extra_bufts": False}
    other: dict[str, Any] = {"split_mode": "row", "tensor_split": (3, 1), "kv_overrides": overrides}
    kept = fill_model_params(llama, written, LoadFields(**given, **other), overrides, repack=False)
    assert len(kept) == 2
    assert {name: getattr(written, name) for name in given} == given
    assert written.split_mode == llama.LLAMA_SPLIT_MODE_ROW
    assert written.tensor_split[:3] == [3, 1, 0]
    a, b, c, d, end = written.kv_overrides[:5]
    assert [item.key for item in (a, b, c, d, end)] == [b"a", b"b", b"c", b"d", b""]
    assert (a.value.val_bool, b.value.val_i64, c.value.val_f64, d.value.val_str) == (True, -3, 0.5, b"text")


def test_layers_for_a_gpu_that_is_not_there_are_computed_as_without(caplog: pytest.LogCaptureFixture) -> None:
    if library().llama_supports_gpu_offload():
        pytest.skip("there is a GPU")
    signals = []
    for layers in (0, -1):
        with ChatLlamaCpp(seed=1, n_gpu_layers=layers) as model:
            signals.append(model.invoke("What is 2 + 2?").response_metadata["token_signals"])
    assert signals[0] == signals[1]
    (notice,) = caplog.records
    assert "n_gpu_layers=-1" in notice.getMessage() and "finds no GPU" in notice.getMessage()


def test_overridden_metadata_counts_for_us_too(tiny_path: Path) -> None:
    with ChatLlamaCpp(model_path=tiny_path, kv_overrides={"general.sampling.temp": 0.0}, max_tokens=5) as model:
        assert model.calibration_fingerprint()["sampling"]["temperature"] == 0.0
        assert model.invoke("hi", seed=1).content == model.invoke("hi", seed=2).content
        assert model.invoke("hi", seed=1, temperature=1.0).content != model.invoke("hi").content
        assert '"general.sampling.temp": 0.0' in model.calibration_fingerprint()["sampling"]["kv_overrides"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_ubatch": 600}, "n_ubatch=600 .*n_batch=512"),
        ({"type_v": "q8_0", "flash_attn": False}, "type_v='q8_0' .*flash"),
        ({"type_k": "q9_0"}, "type_k: .*'q9_0'"),
        ({"rope_freq_scale": float("nan")}, "rope_freq_scale: .*got nan"),
        ({"n_threads_batch": 1000}, "n_threads_batch: .*512, got 1000"),
        ({"tensor_split": (1, -1)}, "tensor_split.1.: .*got -1"),
        ({"tensor_split": (0, 0)}, "tensor_split .*one share"),
        ({"tensor_split": (1,) * 99}, "tensor_split .*99 shares"),
        (
            {"kv_overrides": {"llama.context_length": "many"}},
            r"llama.context_length .*\(1024\).*'many'",
        ),
        ({"kv_overrides": {"k" * 200: 1}}, "127 bytes"),
        ({"kv_overrides": {"general.name": "n" * 200}}, "127 bytes"),
        ({"lora": {"a.gguf": float("inf")}}, "lora.*finite"),
        ({"n_paralel": 4}, "'n_paralel'; did you mean 'n_parallel'"),
        ({"zzz": 4}, "'zzz'; choose from"),
        ({"n_parallel": 256}, "n_parallel: .*96, got 256"),
        ({"n_ctx": 4_000_000_000}, "n_ctx"),
    ],
)
def test_wrong_parameters_are_refused(tiny_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ChatLlamaCpp(model_path=tiny_path, **options)


def test_what_llama_cpp_itself_refuses(tiny_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelFileError, match="wrong number of tensors"):
        ChatLlamaCpp(model_path=tiny_path, kv_overrides={"llama.block_count": 1})
    with pytest.raises(ModelError, match=r"q8_0 .*n_embd_head_k=8"):
        ChatLlamaCpp(model_path=tiny_path, type_k="q8_0", flash_attn=True)
    assert capfd.readouterr() == ("", "")
