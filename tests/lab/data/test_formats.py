"""Data sets in their published forms, of questions of our own: what is recognized, asked and right."""

from pathlib import Path

import pytest
from langchain_reasc_lab.data import FORMATS, PRESETS, read_data_set

from lab.pools.synthetic import write_lines
from langchain_reasc.exceptions import ConfigurationError

FILES = Path(__file__).with_name("files")
GPQA = FILES / "gpqa.csv"

RIGHT = {
    "gsm8k.jsonl": ("gsm8k", [("18",), ("1400",)]),
    "math500.jsonl": ("math500", [("0.6",), (r"( 2, \frac{π}{2} )",)]),
    "omni_math.jsonl": ("omni-math", [("14",), ("2, 3",)]),
    "strategyqa.json": ("strategyqa", [("no",), ("yes",)]),
    "last_letters.json": ("last-letters", [("argaz",), ("étar",)]),
    "nq_open.jsonl": ("nq-open", [("Berlin",), ("1931-05-03", "1931-05", "1931")]),
}


@pytest.mark.parametrize("file", RIGHT)
def test_a_published_form_is_recognized(file: str) -> None:
    name, right = RIGHT[file]
    found = read_data_set(FILES / file)
    assert found.format.name == name
    assert [question.references for question in found.questions] == right
    assert found.questions == read_data_set(FILES / file, format=name).questions


def test_every_data_set_names_a_preset_that_there_is() -> None:
    assert {one.preset for one in FORMATS.values()} == PRESETS.keys()


def test_ids_are_the_published_ones() -> None:
    assert read_data_set(FILES / "math500.jsonl").questions[0].id == "test/prealgebra/90001.json"
    assert read_data_set(FILES / "strategyqa.json").questions[0].id == "hand0000000000000001"
    assert read_data_set(GPQA).questions[0].id == "recHand00000000001"
    by_text = read_data_set(FILES / "math500.jsonl", format="any").questions
    assert all(len(question.id) == 12 for question in by_text), "named after their texts, as in any file"


def test_choices_are_lettered_below_the_question() -> None:
    liquid, ball, *_ = read_data_set(GPQA).questions
    question, _, *choices = liquid.input.split("\n")
    assert question == "Which of these, at room temperature and sea level, is a liquid metal?"
    assert [choice[:3] for choice in choices] == ["A) ", "B) ", "C) ", "D) "]
    assert {choice[3:] for choice in choices} == {"Mercury", "Tungsten", "Iron, cast", "Nickel"}
    assert dict(zip("ABCD", choices, strict=True))[liquid.reference].endswith("Mercury")
    assert f"{ball.reference}) 20 m" in ball.input


def test_the_order_of_choices_rests_on_their_texts_alone(tmp_path: Path) -> None:
    row = {"Question": "Which?", "Correct Answer": "this", **{f"Incorrect Answer {n}": f"that {n}" for n in (1, 2, 3)}}
    moved = row | {"Incorrect Answer 1": "that 3", "Incorrect Answer 3": "that 1 \n"}
    first, second = (read_data_set(write_lines(tmp_path / "q.jsonl", one)).questions[0] for one in (row, moved))
    assert first == second
    assert first.input == "Which?\n\nA) that 2\nB) this\nC) that 3\nD) that 1", (
        "another order would be another question"
    )
    other_right = row | {"Correct Answer": "that 1", "Incorrect Answer 1": "this"}
    third = read_data_set(write_lines(tmp_path / "q.jsonl", other_right)).questions[0]
    assert (third.input, third.reference, first.reference) == (first.input, "D", "B"), (
        "the order does not tell which is right"
    )


def test_a_choice_that_reads_like_the_right_one_is_right_too(tmp_path: Path) -> None:
    row = {"Question": "?", "Correct Answer": "2", "Incorrect Answer 1": " 2", "Incorrect Answer 2": 3}
    [question] = read_data_set(write_lines(tmp_path / "q.jsonl", row | {"Incorrect Answer 3": 4.5})).questions
    assert len(question.references) == 2
    assert all(f"{letter}) 2" in question.input for letter in question.references)


def test_yes_and_no_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text("qid,question,answer\n1,Is it?,True\n2,Was it?,false\n", encoding="utf-8")
    assert [question.references for question in read_data_set(path).questions] == [("yes",), ("no",)]
    path.write_text("qid,question,answer\n1,Is it?,True\n2,Was it?,perhaps\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"q\.csv, line 3: .*StrategyQA"):
        read_data_set(path)


def test_named_fields_go_before_what_is_recognized() -> None:
    by_subject = read_data_set(FILES / "math500.jsonl", question_field="subject", answer_field="level")
    assert by_subject.format.name == "any"
    assert [(one.input, one.reference) for one in by_subject.questions] == [("Prealgebra", "1"), ("Precalculus", "2")]
