"""The benchmarks run: small models, one round. Nothing here looks at a figure's size."""

import os
import subprocess
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

from benchmarks import bare_loop, peers
from benchmarks.__main__ import main
from benchmarks.random_gguf import Shape, make_vocabulary, random_blocks, write_random_model
from benchmarks.settings import Settings
from benchmarks.table import Goal, Row, Spread, render

ROOT = Path(__file__).parents[2]
SMALL = Shape(layers=1, width=64, heads=4, kv_heads=2, hidden=128, vocabulary=1500, context=512)


@pytest.mark.parametrize("quantization", ["Q8_0", "Q4_0", "F16"])
def test_a_random_model_chats_to_its_limit(tmp_path: Path, quantization: str) -> None:
    path = write_random_model(tmp_path / "model.gguf", shape=SMALL, quantization=quantization)
    with ChatLlamaCpp(model_path=path, seed=1) as model:
        answers = [message for _, message in model.sample("why does it rain", n=4, max_tokens=100)]
        assert model.get_num_tokens("why does it rain") == 9  # the letters are merged in pairs
        assert [answer.response_metadata["finish_reason"] for answer in answers] == ["length"] * 4
        assert len({answer.content for answer in answers}) == 4


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0"])
def test_random_blocks_have_the_deviation_asked_for_and_no_mean(kind: str) -> None:
    quantization = gguf.GGMLQuantizationType[kind]
    blocks = random_blocks(np.random.default_rng(0), 512, 256, kind=quantization, scale=0.25)
    values = gguf.quants.dequantize(blocks, quantization)
    assert values.shape == (512, 256)
    assert values.std() == pytest.approx(0.25, rel=0.01)
    assert abs(values.mean()) < 0.005


def test_every_token_of_the_vocabulary_is_made_of_earlier_ones() -> None:
    vocabulary = make_vocabulary(151_936)
    known = set(vocabulary.tokens[:256])
    for merge, token in zip(vocabulary.merges, vocabulary.tokens[256 : vocabulary.ordinary], strict=True):
        left, right = merge.split(" ")
        assert left in known and right in known and left + right == token
        known.add(token)
    assert len(known) == vocabulary.ordinary
    assert len(vocabulary.tokens) == len(vocabulary.kinds) == len(set(vocabulary.tokens)) == 151_936


def test_the_table_says_what_is_met() -> None:
    table = render(
        [
            Row("fast", Spread(0.9, 1.0, 1.1), Goal("≥", 0.97), note="why"),
            Row("slow", Spread(0.9, 1.0, 1.1), Goal("≥", 1.7)),
            Row("small", Spread(0.1, 0.1, 0.1), Goal("≤", 0.1)),
            Row("absent", None, Goal("<", 15, " %")),
        ]
    ).splitlines()
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:6]] == [
        ["fast [1]", "≥ 0.97", "0.900", "1.000", "1.100", "met"],
        ["slow", "≥ 1.7", "0.900", "1.000", "1.100", "NOT MET"],
        ["small", "≤ 0.1", "0.100", "0.100", "0.100", "met"],
        ["absent", "< 15 %", "", "", "", "not run"],
    ]
    assert table[-1] == "[1] why"


def test_kernels_that_are_not_safe_are_left_out_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, load = write_random_model(tmp_path / "model.gguf", shape=SMALL), llama_cpp.llama_model_load_from_file
    repacks: list[bool] = []

    def watched(name: bytes, parameters: llama_cpp.llama_model_params) -> object:
        repacks.append(parameters.use_extra_bufts)
        return load(name, parameters)

    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", watched)
    for safe in (True, False):
        monkeypatch.setattr(bare_loop, "may_repack", lambda llama, header, safe=safe: safe)
        bare_loop.BareLoop(path, sequences=1, cells=64, threads=1, n_gpu_layers=0, flash_attn=None)
    assert repacks == [True, False]
    monkeypatch.setattr(peers, "may_repack", lambda llama, header: False)
    (row,) = peers.against_llama_cpp_python(Settings(quick=True, folder=tmp_path))
    assert "not safe" in row.note and row.spread is None


@pytest.mark.slow  # three measures
def test_measures_chosen_by_name_print_one_table_below_the_machine(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "decode", "step", "prefix", "--quick", "--folder", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONUTF8": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("processor: ") and "llama-cpp-python 0." in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    goals = [row.split("|")[2].strip() for row in rows]
    assert goals.count("≥ 0.97") == 5 and {"≥ 1.8", "≤ 0.1", "≤ 25 %", "≤ 8 %"} <= set(goals)


def test_an_unknown_measure_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["decoding"])
    assert "'decoding'; choose from decode," in capsys.readouterr().err
