"""Small questions: many different ones of each kind, in the same order each time, and none that the prompt answers."""

import re
from collections import Counter

from langchain_reasc_lab.data.small_questions import PROMPT, kind_of, small_questions


def test_as_many_of_each_kind_and_none_twice() -> None:
    questions = small_questions()
    assert questions == small_questions()
    assert len({question.input for question in questions}) == len({question.id for question in questions}) == 420
    for some in (questions[:126], questions[126:]):  # what calibrates and what tests are of one kind
        counts = Counter(kind_of(question.id) for question in some)
        assert {*counts} == {"yes or no", "one-step problem", "fact"} and len({*counts.values()}) == 1
    yes_or_no = Counter(question.reference for question in questions if kind_of(question.id) == "yes or no")
    assert yes_or_no.keys() == {"yes", "no"} and 0.4 < yes_or_no["yes"] / 140 < 0.6
    shown = {str(turn.content) for turn in PROMPT.turns}
    assert not shown & {question.input for question in questions}


def test_answers_are_what_they_should_be() -> None:
    answers = {question.input: question.reference for question in small_questions()}
    assert answers["What is the past tense of fall?"] == "fell"
    assert answers["Is an ant an insect?"] == "yes"
    by = {"in each": int.__mul__, "more": int.__add__, "away": int.__sub__}
    for asked, answer in answers.items():
        for words, result in by.items():
            if words in asked:
                assert result(*map(int, re.findall(r"\d+", asked))) == int(answer)
