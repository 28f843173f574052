"""Last Letter Concatenation, the task of Wei et al. (2022), with questions generated
from names.

What is published as ``last_letters.json`` is read as any other file, see
:mod:`langchain_reasc_lab.data.formats`.
"""

import random
import re
from collections.abc import Iterator
from typing import Final

from langchain_reasc.exceptions import ConfigurationError

_NAMED = re.compile(
    r"last-letters:(?P<n>\d{1,7})(?P<options>(?:,(?:words|seed)=\d{1,9})*)"
)
_ALL_NAMES: Final = """
Abel Ada Agnes Alba Alfred Alice Amir Ana Andre Anita Anton Arif Arthur Astrid Aysel Basil Beate Bela Ben Berta Bianca
Boris Bram Brigid Bruno Camille Carlos Cecil Celeste Chidi Clara Conrad Cora Cyril Dagmar Dalia Daniel Daphne David
Deborah Denis Diego Dilek Dora Edgar Edith Elena Eli Elif Emil Emma Enzo Erik Esther Eva Fabian Fatima Felix Fiona
Flora Francis Frank Frieda Gabriel George Gerd Gita Gloria Greta Gustav Hana Hannah Hans Hasan Hazel Hector Helen
Henrik Hilda Hugo Ibrahim Ida Igor Ilse Imran Ines Ingrid Irene Isaac Ismail Ivan Ivy Jack Jacob Jana Jasper Jens Joan
Joel Jonas Josef Judith Julian Kamil Karin Kasimir Kenji Kira Klaus Kurt Lamar Lars Laszlo Laura Layla Lena Leo Levin
Lidia Linus Lois Lorenz Louis Lucy Ludwig Luz Maeve Magnus Malik Marcel Margit Mario Mark Martha Matej Max Maya Mehmet
Mila Miriam Miroslav Monika Moritz Nadir Naomi Nasrin Nell Nico Nils Nina Noah Nora Odin Olaf Olga Omar Oscar Otto
Pablo Pascal Paul Pavel Pedro Petra Philip Pia Quentin Rachel Radek Rafael Ralph Ramon Raya Regina Rolf Rosalind Ruben
Rudolf Ruth Sami Samuel Sara Sasha Selim Serge Signe Silas Simon Sofia Stella Sven Tamar Tariq Tess Theo Thomas Tilda
Tobias Toni Ulrich Uma Ursula Valentin Vera Victor Viggo Vivek Wanda Wendel Wilma Xavier Yara Yasmin Yosef Yusuf
Zdenek Zeno Zita Zoe
"""
_NAMES: Final = tuple(_ALL_NAMES.split())


def last_letters(n: int, words: int = 4, seed: int = 0) -> list[tuple[str, str]]:
    """Return questions for the last letters of names, all different, with their
    answers, such as ``nadx``.

    The same arguments give the same questions with any version of Python, and more of
    them begin with the same.

    Args:
        n: how many questions.
        words: names in each; the paper has four.
        seed: of the choice of names.

    Raises:
        ConfigurationError: no question, no name, or more questions than there are.
    """
    if n < 1 or words < 1 or n > len(_NAMES) ** words // 2:
        raise ConfigurationError(
            "last letters: from 1 name a question and from 1 to "
            f"{len(_NAMES) ** max(words, 1) // 2} questions can be made, got n={n}, "
            f"words={words}"
        )
    chance = random.Random(seed)  # only random() is the same in every version of Python
    made: dict[str, str] = {}
    while len(made) < n:
        names = [_NAMES[int(chance.random() * len(_NAMES))] for _ in range(words)]
        question = f'Take the last letters of the words in "{" ".join(names)}" and concatenate them.'
        made[question] = "".join(name[-1] for name in names)
    return list(made.items())


def generated_rows(source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of ``last-letters:N`` or ``last-letters:N,words=2,seed=7``, with
    their places.

    Raises:
        ConfigurationError: another spelling, or more questions than there are.
    """
    named = _NAMED.fullmatch(source)
    if named is None:
        raise ConfigurationError(
            "generated questions are named last-letters:500, or "
            f"last-letters:500,words=2,seed=7; got {source!r}"
        )
    options = dict(option.split("=") for option in named["options"].split(",")[1:])
    made = last_letters(
        int(named["n"]), **{name: int(value) for name, value in options.items()}
    )
    for at, (question, answer) in enumerate(made, 1):
        yield f"{source}, question {at}", {"question": question, "answer": answer}
