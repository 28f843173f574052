"""Questions generated from names, whose last letters are the answer."""

import re

import pytest
from langchain_reasc_lab.data import read_data_set
from langchain_reasc_lab.last_letters import last_letters

from langchain_reasc.data import read_questions
from langchain_reasc.exceptions import ConfigurationError


def test_the_answer_is_the_last_letters() -> None:
    made = last_letters(50, words=2, seed=3)
    assert len(dict(made)) == 50
    for question, answer in made:
        first, second = re.findall(r'words in "(.+)" and', question)[0].split(" ")
        assert answer == first[-1] + second[-1] == answer.lower() and answer.isalpha()


def test_a_seed_makes_the_same_questions_everywhere() -> None:
    assert last_letters(2) == [
        ('Take the last letters of the words in "Serge Pia Jack Fatima" and concatenate them.', "eaka"),
        ('Take the last letters of the words in "Lars Isaac Ramon Gita" and concatenate them.', "scna"),
    ]
    assert last_letters(100)[:30] == last_letters(30)
    assert not dict(last_letters(30)).keys() & dict(last_letters(30, seed=1)).keys()


def test_they_are_read_by_their_name() -> None:
    found = read_data_set("last-letters:20,words=2,seed=7")
    assert found.format.name == "last-letters"
    assert [(one.input, one.reference) for one in found.questions] == last_letters(20, words=2, seed=7)
    assert read_questions("last-letters:20", limit=5) == read_questions("last-letters:5")
    assert {len(one.id) for one in found.questions} == {12}


@pytest.mark.parametrize("source", ["last-letters:", "last-letters:5,n=2"])
def test_another_spelling_is_refused(source: str) -> None:
    with pytest.raises(ConfigurationError, match="last-letters:500, or last-letters:500,words=2,seed=7"):
        read_questions(source)


@pytest.mark.parametrize("options", [{"n": 0}, {"n": 200, "words": 1}])
def test_more_than_there_are_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"got n="):
        last_letters(**options)
