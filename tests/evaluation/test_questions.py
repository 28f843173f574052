"""Labelled questions from JSON Lines and CSV."""

from pathlib import Path

import pytest

from evaluation.pools import write_lines
from langchain_reasc.evaluation.questions import LabelledQuestion, read_questions
from langchain_reasc.exceptions import ConfigurationError


def test_json_lines_under_the_usual_names(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "q.jsonl",
        {"id": "a", "question": "3 + 4?", "answer": 7},
        {"question": "gsm8k", "answer": "3 + 4 = 7\n#### 1,007"},
        {"problem": "math", "solution": "so \\boxed{\\frac{1}{2}}"},
    )
    assert read_questions(path) == [
        LabelledQuestion("a", "3 + 4?", "7"),
        LabelledQuestion("2", "gsm8k", "1007"),
        LabelledQuestion("3", "math", "0.5"),
    ]
    assert len(read_questions(path, limit=2)) == 2


def test_csv_with_named_fields(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text('frage,antwort\n"Was ist, bitte, 3 + 4?",7\n', encoding="utf-8")
    assert read_questions(path, question_field="frage", answer_field="antwort")[0].input == "Was ist, bitte, 3 + 4?"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "holds no question"),
        (["{"], "line 1 is not valid JSON"),
        (["[]"], "line 1: a question is a JSON object"),
        ([{"text": "?", "answer": "1"}], "line 1 has no question .*it has text, answer.*--question-field"),
        ([{"question": "?", "answer": ""}], "line 1 has no answer.*--answer-field"),
        ([{"id": 1, "question": "?", "answer": 1}] * 2, "line 2: id '1' appears a second time"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, lines: list[object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        read_questions(write_lines(tmp_path / "q.jsonl", *lines))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no questions at .*nope\.csv"):
        read_questions(tmp_path / "nope.csv")
