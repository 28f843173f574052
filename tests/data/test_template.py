"""Templates: what is read, asked and refused."""

from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage, SystemMessage

from langchain_reasc.data import Template
from langchain_reasc.exceptions import ConfigurationError


def test_a_text_stands_around_the_question() -> None:
    template = Template.from_option('Answer as {"n": ...}.\n{question}\nThink.')
    assert template.messages("1 + {1}?") == [HumanMessage('Answer as {"n": ...}.\n1 + {1}?\nThink.')]
    assert template.fixed == [("human", 'Answer as {"n": ...}.\n{question}\nThink.')]


def test_a_file_holds_a_text(tmp_path: Path) -> None:
    text = tmp_path / "prompt.txt"
    text.write_text("Q: {question}\n", encoding="utf-8")
    assert Template.from_option(str(text)).messages("1?") == [HumanMessage("Q: 1?")]


def test_a_question_that_speaks_of_the_placeholder_is_left_as_it_is() -> None:
    assert Template.from_option("{question}!").messages("What is {question}?") == [HumanMessage("What is {question}?!")]


def test_a_system_message_goes_in_front_of_a_template_that_has_none() -> None:
    assert Template.from_option("Q: {question}").after("Be brief.").fixed[0] == ("system", "Be brief.")
    assert Template().after(None).messages("1?") == [HumanMessage("1?")]
    with pytest.raises(ConfigurationError, match="system message"):
        Template([SystemMessage("Add."), HumanMessage("{question}")]).after("Be brief.")


@pytest.mark.parametrize("name", ["t.txt", "t.json"])
def test_what_is_no_template_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('["no place for it"]', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"\{question\}"):
        Template.from_option(str(path))


@pytest.mark.parametrize("given", ["missing.txt", "a text without the place" * 200])
def test_neither_a_file_nor_a_text(given: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a file"):
        Template.from_option(given)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9 {question}")
    with pytest.raises(ConfigurationError, match=r"latin\.txt"):
        Template.from_option(str(path))
