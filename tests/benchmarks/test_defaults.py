"""A short run of ``python -m benchmarks.defaults``."""

from pathlib import Path

import numpy as np
import pytest
from lab.pools.synthetic import json_lines, question, response, write_pool

from benchmarks.defaults import CONFIDENCES, LEADS, VALUES, ahead_of_horizon, main, question_set


def test_a_recording_belongs_to_the_questions_that_its_name_says() -> None:
    assert question_set("mot_gsm_all_gpt-4") == question_set("consol_gsm8k_gpt4omini_40")
    assert question_set("epoch_otis_mock_aime_gpt-5") != question_set("consol_aime24_o3-mini")
    assert question_set("mine") == "mine"


def test_a_lead_is_compared_at_as_many_tokens() -> None:
    horizon = [[confidence, -2 * (1 - confidence)] for confidence in CONFIDENCES]
    leads = [[0.9, -0.2], [0.96, -0.04], [0.985, -0.06]]
    assert len(leads) == len(LEADS)
    assert ahead_of_horizon(np.array(horizon + leads)) == pytest.approx([0, 0.04, -0.03])


def test_the_defaults_are_compared_by_set_of_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.defaults.BUDGETS", (8,))
    for name in ("a", "b", "c", "gsm_1", "gsm_2"):
        write_pool(tmp_path / f"{name}.sqlite", questions=30, samples=8, signals=False, seed=ord(name[-1]))
    json_lines(tmp_path / "single.jsonl", question("q", response("7")))
    main([str(tmp_path), "--shuffles", "1"])
    head, horizon, ahead, by_set, worlds, *learned = capsys.readouterr().out.split("\n\n")
    assert head.startswith("4 sets of questions, 1 shuffles (seed 0)\n")
    assert head.endswith("\n  all: GSM8K, a, b, c")
    assert [block.splitlines()[0].split("  ")[0] for block in (horizon, *learned)] == [*VALUES]
    assert all("(default)" in block.splitlines()[1] for block in (horizon, by_set, worlds, *learned))
    tokens = {line.split()[0]: float(line.replace("(default)", "").split()[1]) for line in horizon.splitlines()[1:]}
    confidences = [tokens[f"{confidence:g}"] for confidence in sorted(CONFIDENCES)]
    assert confidences == sorted(confidences) and confidences[0] < confidences[-1] < 1
    assert tokens["2"] < tokens["3"] < tokens["4"] < 1
    assert len(ahead.splitlines()) == 1 + len(LEADS)
    assert by_set.splitlines()[0].split()[-4:] == ["a", "b", "c", "GSM8K"]
    assert "-0.37 (p=0.70 m=1)" in worlds.splitlines()[1]
    (tmp_path / "c.sqlite").unlink()
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--shuffles", "1"])
    assert "3 sets of questions" in capsys.readouterr().err
