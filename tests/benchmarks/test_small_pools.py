"""Questions for small pools: the same ones each time, and all of them new."""

import json
from pathlib import Path

from langchain_reasc_lab.data.small_questions import small_questions
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path

from benchmarks.small_pools import main, questions, templates
from langchain_reasc.data import read_questions


def test_questions_are_new_all_different_and_the_same_again() -> None:
    made = questions()
    assert made == questions()
    assert {name: len(some) for name, some in made.items()} == {
        "words": 249,
        "mixed": 248,
        "facts": 241,
        "choice": 240,
        "arithmetic": 265,
        "word_problems": 640,
    }
    asked = [question for some in made.values() for question, _ in some]
    assert len({*asked}) == len(asked)
    known = {question.input for question in small_questions()}
    for name in ("calibration", "test"):
        known |= {question.input for question in read_questions(embedded_model_path().with_name(f"{name}.jsonl"))}
    assert not known & {*asked}
    assert not any(asked in template for name, template in templates().items() for asked, _ in made[name])


def test_answers_are_what_they_should_be() -> None:
    made = {question: answer for some in questions().values() for question, answer in some}
    for question, answer in made.items():
        if question.startswith("How much is "):
            assert eval(question.removeprefix("How much is ").removesuffix("?")) == int(answer)
        if "A) " in question:
            right = next(line for line in question.splitlines() if line.startswith(f"{answer}) "))
            assert right.removeprefix(f"{answer}) ") and question.count(right) == 1
    assert made["What is the plural of city?"] == "cities"
    assert made["What is the capital of Ethiopia?"] == "Addis Ababa"
    assert made["Which sound does a donkey make?"] == "bray/hee-haw"


def test_a_model_is_asked_in_the_template_that_is_written(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    first = read_questions(tmp_path / "facts.jsonl")[0]
    with ChatLlamaCpp(chat_template=(tmp_path / "facts.jinja").read_text("utf-8")) as model:
        tokens = model.prompt_tokens(first.input)
        plain = model.prompt_tokens("")
    assert len(tokens) > len(plain) > 0
    rows = [json.loads(line) for line in (tmp_path / "words.jsonl").read_text("utf-8").splitlines()]
    assert rows[0]["id"] == "words 1" and isinstance(rows[0]["answer"], list)
