"""Judges of whether two answers mean the same, embeddings that tell it, and answers to judge."""

import re
from collections.abc import Callable
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_reasc.answers import Same

from .fakes import Reply, Scripted

TAGGED = re.compile(
    r"<question>\n(.*?)\n</question>.*<first_answer>\n(.*?)\n</first_answer>.*<second_answer>\n(.*?)\n<", re.S
)


def asked(prompt: str) -> tuple[str, str, str]:
    """The question and the two answers that a judge is given."""
    found = TAGGED.search(prompt)
    assert found
    return found[1], found[2], found[3]


def judging(same: Same, says: Callable[[bool], Reply | str] = lambda same: "yes" if same else "no") -> Scripted:
    """A judge who is right."""

    def script(prompt: str, index: int) -> Reply:
        reply = says(same(*asked(prompt)[1:]))
        return reply if isinstance(reply, Reply) else Reply(reply)

    return Scripted(script=script, model_name="judge")


def pairs(judge: Scripted) -> list[tuple[str, str]]:
    return [asked(prompt)[1:] for prompt, _ in judge.log.calls]


def city(first: str, second: str) -> bool:
    """Whether two sentences name the same city."""
    cities = {"Paris", "Lyon", "Rome"}
    return cities & set(first.split()) == cities & set(second.split())


PARIS = [Reply(text) for text in ("Paris it is", "It is Paris I think", "paris  it IS.", "Surely Paris")]


def distinct(count: int) -> list[Reply]:
    return [Reply(f"Paris {at}") for at in range(count)]


METERED = {"input_tokens": 100, "output_tokens": 1, "total_tokens": 101}


def metered(usage: bool = True) -> Scripted:
    """A judge whose calls cost 100 and 1 tokens, or say nothing of it."""
    return judging(city, lambda same: Reply("yes" if same else "no", usage=METERED if usage else False))


class Vectors(Embeddings):
    """Gives each text the vector it is told to; notes what it was asked."""

    def __init__(self, **vectors: Any) -> None:
        self.vectors, self.asked = vectors, list[str]()

    def embed_documents(self, texts: list[str]) -> Any:
        self.asked += texts
        return [self.vectors[text] for text in texts]

    def embed_query(self, text: str) -> Any:
        raise AssertionError("answers are documents")
