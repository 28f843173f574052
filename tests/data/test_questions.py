"""Labelled questions from JSON Lines and CSV."""

from pathlib import Path

import pytest
from lab.pools.synthetic import write_lines

from langchain_reasc.data import LabelledQuestion, read_questions, read_unlabelled
from langchain_reasc.exceptions import ConfigurationError


def test_json_lines_under_the_usual_names(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "q.jsonl",
        {"id": "a", "question": "3 + 4?", "answer": 7},
        {"question": "gsm8k", "answer": "3 + 4 = 7\n#### 1,007"},
        {"problem": "math", "solution": "so \\boxed{\\frac{1}{2}}"},
    )
    named, *unnamed = read_questions(path)
    assert named == LabelledQuestion("a", "3 + 4?", "7")
    assert [(one.input, one.reference) for one in unnamed] == [("gsm8k", "1007"), ("math", "0.5")]
    assert len(read_questions(path, limit=2)) == 2


def test_questions_without_ids_have_the_same_names_in_either_kind_of_file(tmp_path: Path) -> None:
    asked = ["one?", "two?", "one?", "one?"]
    lines = write_lines(tmp_path / "q.jsonl", "", *({"question": text, "answer": "1"} for text in asked))
    table = tmp_path / "q.csv"
    table.write_text("answer,id,question\n" + "".join(f"1,,{text}\n" for text in asked), encoding="utf-8")
    names = [question.id for question in read_questions(lines)]
    assert names == [question.id for question in read_questions(table)]
    assert len(set(names)) == 4, "the same text asked again has samples of its own"
    moved = write_lines(tmp_path / "moved.jsonl", *({"question": text, "answer": "1"} for text in asked[1:]))
    assert [question.id for question in read_questions(moved)] == [names[1], names[0], names[2]]


def test_an_id_is_taken_as_it_is(tmp_path: Path) -> None:
    rows = ({"id": given, "question": "?", "answer": "1"} for given in (0, "a", False))
    assert [one.id for one in read_questions(write_lines(tmp_path / "q.jsonl", *rows))] == ["0", "a", "False"]


def test_half_an_emoji_in_a_question_is_replaced(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "q.jsonl", '{"question": "\\ud83d\\ude00 and \\ud83d?", "answer": "1"}')
    assert read_questions(path)[0].input == "😀 and �?"


def test_questions_without_answers_from_a_text(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_text("\ufeff What is 3 + 4?\n\n  and 4 + 5?  \nWhat is 3 + 4?\nthree\n", encoding="utf-8")
    assert read_unlabelled(path) == [("What is 3 + 4?", None), ("and 4 + 5?", None), ("three", None)]
    assert len(read_unlabelled(path, limit=2)) == 2
    with pytest.raises(ConfigurationError, match="no field 'answer'"):
        read_unlabelled(path, answer_field="answer")
    for name in ("README.md", "page.html", "README.md.gz"):  # whether there is such a file or not
        with pytest.raises(ConfigurationError, match=r"ending \.txt"):
            read_unlabelled(path.with_name(name))


def test_questions_of_which_some_have_answers(tmp_path: Path) -> None:
    lines = [{"question": "3 + 4?", "answer": "so #### 7"}, {"input": "why?"}, {"prompt": "5 + 5?", "answer": ""}]
    path = write_lines(tmp_path / "q.jsonl", *lines)
    assert read_unlabelled(path) == [("3 + 4?", None), ("why?", None), ("5 + 5?", None)]
    assert read_unlabelled(path, answer_field="answer") == [("3 + 4?", ("7",)), ("why?", None), ("5 + 5?", None)]
    table = tmp_path / "q.csv"
    table.write_text("frage,antwort\neins,1\nzwei,\n", encoding="utf-8")
    assert read_unlabelled(table, question_field="frage", answer_field="antwort") == [("eins", ("1",)), ("zwei", None)]


def test_several_answers_are_accepted(tmp_path: Path) -> None:
    rows = [
        {"question": "1?", "answer": "UK", "aliases": ["Britain", "U.K.", "britain", None]},
        {"question": "2?", "answer": ["7", 7.0, "seven"], "accepted": "VII"},
        {"question": "3?", "answers": ["a"]},
        {"question": "4?", "answer": "b", "aliases": []},
    ]
    read = read_questions(write_lines(tmp_path / "q.jsonl", *rows))
    assert [one.references for one in read] == [("UK", "Britain", "U.K"), ("7", "VII"), ("a",), ("b",)]
    assert read[0].accepted == ("Britain", "U.K")


def test_a_cell_with_a_list_of_texts_is_several_answers(tmp_path: Path) -> None:
    table = tmp_path / "q.csv"
    table.write_text('question,answer\n1?,"[""UK"", ""Britain""]"\n2?,"[1, 2]"\n3?,"[""half"\n', encoding="utf-8")
    read = [one.references for one in read_questions(table)]
    assert read == [("UK", "Britain"), ("[1, 2]",), ('["half',)], "[1, 2] is an interval, or a list"
