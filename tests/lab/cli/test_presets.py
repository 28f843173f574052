"""`reasc record`: data sets, presets and generated questions, with the model that comes with the package."""

import sys
from pathlib import Path

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.data import PRESETS
from langchain_reasc_lab.last_letters import last_letters
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_llama_cpp import embedded_model_path

FILES = Path(__file__).parents[1] / "data" / "files"
MODEL = embedded_model_path()
pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="the shipped model is not built yet")
SHORT = ("--samples", 1, "--max-tokens", 12)


def asked_of(pool: Path) -> tuple[object, dict[str, object]]:
    """The template that a pool was recorded with, and the sampling."""
    metadata = read_pool(pool).metadata
    return metadata["template"], metadata["fingerprint"]["sampling"]


def test_generated_questions_are_asked_as_the_papers_models_are(tmp_path: Path) -> None:
    named, pool = tmp_path / "qwen2.5-tiny.gguf", tmp_path / "p.sqlite"
    named.symlink_to(MODEL)
    arguments = ("record", "last-letters:3,words=2", "--out", pool, "--model", named, "--preset", "auto", *SHORT)
    said = reasc(*arguments).stderr
    assert '--preset letters: "{question} Think step by step.' in said
    assert "temperature 0.7, top_p 0.8, top_k 20" in said
    template, sampling = asked_of(pool)
    assert template == [list(turn) for turn in PRESETS["letters"].template.fixed]
    assert isinstance(sampling, dict)
    assert [sampling[name] for name in ("temperature", "top_p", "top_k")] == [0.7, 0.8, 20]
    held = read_pool(pool).questions
    assert [(one.input, one.reference) for one in held] == last_letters(3, words=2)
    assert "Recording: 3 of 3" in reasc(*arguments).stderr, "the same command goes on"


def test_what_is_given_goes_before_a_preset(tmp_path: Path) -> None:
    named, pool = tmp_path / "Llama-3.2-tiny.gguf", tmp_path / "p.sqlite"
    named.symlink_to(MODEL)
    own = ("--template", "Q: {question}", "--answer", "boxed", "--temperature", 0.25)
    said = reasc("record", FILES / "nq_open.jsonl", "-o", pool, "-m", named, "--preset", "auto", *own, *SHORT).stderr
    assert "--answer boxed; sampling: temperature 0.25, top_p 0.9" in said
    template, sampling = asked_of(pool)
    assert template == [["human", "Q: {question}"]]
    assert isinstance(sampling, dict)
    assert (sampling["temperature"], sampling["top_p"]) == (0.25, pytest.approx(0.9))
    assert read_pool(pool).metadata["answer"] == "boxed"
    assert [one.references for one in read_pool(pool).questions][1] == ("1931-05-03", "1931-05", "1931")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--preset", "essay"), "'essay'; choose auto, number"),
        (("--format", "gsm9k"), "'gsm9k'; choose auto, any, gsm8k"),
        (("--preset", "auto", "--format", "any"), "--preset auto"),
        (("--format", "nq-open"), "math500.jsonl, line 1"),
        (("--format", "math500", "--answer-field", "level"), "format math500"),
    ],
)
def test_what_does_not_fit_is_said_before_a_model_is_loaded(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_reasc_llama_cpp", None)
    [line] = reasc("record", FILES / "math500.jsonl", "--out", tmp_path / "out", *arguments, code=1).stderr.splitlines()
    assert says in line


def test_a_preset_that_needs_a_package_says_so_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_reasc_llama_cpp", None)
    monkeypatch.setattr("langchain_reasc.answers.mathematics.find_spec", lambda name: None)
    arguments = ("record", FILES / "math500.jsonl", "--preset", "auto", "--out", tmp_path / "p.sqlite")
    assert "math-verify" in reasc(*arguments, code=1).stderr
    assert "llama-cpp-python" in reasc(*arguments, "--answer", "auto", code=1).stderr
