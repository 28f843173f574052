"""Questions for small pools: ``python -m benchmarks.small_pools FOLDER``.

Rules of stopping are tried on responses of small models, which two cores record in minutes. Each set of questions is
written as ``NAME.jsonl``, and a chat template with examples of how to answer them as ``NAME.jinja``. No question is
shipped or in :mod:`langchain_reasc_lab.data.small_questions`, and no two sets have one in common.

SmolLM2-135M-Instruct is asked ``words``, ``choice`` (with ``--answer choice``), ``arithmetic`` and ``facts``; Gemma 3
270M, a base model, ``mixed`` (with ``--model-kwargs 'stop=["\\n"]'``); and the shipped model ``word_problems``:

reasc record FOLDER/words.jsonl --out words.sqlite --model SmolLM2-135M-Instruct.Q4_1.gguf --temperature 0.7 \\
    --max-tokens 32 --chat-template FOLDER/words.jinja --model-kwargs n_parallel=16
reasc record FOLDER/word_problems.jsonl --out word_problems.sqlite --model-kwargs n_parallel=16
"""

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from langchain_reasc_lab.data import small_questions as small

from benchmarks.command import parser_of
from benchmarks.difficulty import DIFFICULTIES, word_problems

_T = TypeVar("_T")
Asked = tuple[str, str]
"""A question and its answer; with ``/``, several are accepted."""

_TABLES: Final[dict[str, dict[str, str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
_CHOICES: Final = (
    ("Which of these is a reptile?", ("a fork", "a lizard", "a rose", "chess")),
    ("Which is the capital of Malta?", ("Riga", "Bern", "Doha", "Valletta")),
    ("Which is the opposite of happy?", ("sad", "tired", "green", "round")),
    ("Which is the past tense of say?", ("sold", "sang", "said", "sat")),
    ("Which of these is a colour?", ("green", "a wolf", "a lamp", "Russian")),
    ("Which is the capital of Laos?", ("Oslo", "Lima", "Vientiane", "Seoul")),
    ("Which is the opposite of thirst?", ("sleep", "hunger", "winter", "glass")),
    ("Which is the past tense of cut?", ("hit", "put", "set", "cut")),
)
_BASE: Final = "Question: {}\nAnswer:"
_TURN: Final = "<|im_start|>{}\n{}<|im_end|>\n"
_SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class _Chance(Random):
    """Draws by ``random()`` alone, which is the same in every version of Python."""

    def number(self, least: int, most: int) -> int:
        return least + int(self.random() * (most - least + 1))

    def mixed(self, some: Iterable[_T]) -> list[_T]:
        return sorted(some, key=lambda _: self.random())


def questions() -> dict[str, list[Asked]]:
    """Return the sets by their names, each in an order that is the same each time."""
    chance = _Chance(0)
    made = {
        "words": _filled("words"),
        "mixed": [*_filled("mixed"), *_sums(chance), *_comparisons(chance)],
        "facts": _filled("facts"),
        "choice": _choices(chance),
        "arithmetic": _two_steps(chance),
    }
    sets = {name: chance.mixed(dict(some).items()) for name, some in made.items()}
    levels = [word_problems(difficulty, 214, seed=1) for difficulty in DIFFICULTIES]
    by_turns = [problem for level in zip(*levels, strict=True) for problem in level]
    return sets | {
        "word_problems": [(one.input, one.reference) for one in by_turns[:640]]
    }


def templates() -> dict[str, str]:
    """Return the chat templates by the names of the sets."""
    shown = {name: list(_pairs(table)) for name, table in _TABLES["shown"].items()}
    base = "".join(
        _BASE.format(asked) + f" {told}\n\n" for asked, told in shown.pop("mixed")
    )
    for name, some in shown.items():
        shown[name] = [(asked, f"The answer is {told}.") for asked, told in some]
    shown["choice"] = [
        (_listed(asked, options), f"The answer is {letter}.")
        for (asked, options), letter in zip(_CHOICES, "BDACACBD", strict=True)
    ]
    found = {"mixed": _template(base, _BASE)}
    for name, some in shown.items():
        turns = [("system", _SYSTEM)]
        for asked, told in some:
            turns += [("user", asked), ("assistant", told)]
        before = "".join(_TURN.format(*turn) for turn in turns)
        found[name] = _template(
            before, _TURN.format("user", "{}") + "<|im_start|>assistant\n"
        )
    return found


def _template(before: str, around: str) -> str:
    """Return a chat template of one question: a text, and what is around the question."""
    start, end = around.split("{}")
    texts = (json.dumps(text) for text in (before + start, end))
    return "{{{{ {} + messages[-1].content + {} }}}}".format(*texts)


def _pairs(table: str) -> Iterator[Asked]:
    for pair in " ".join(table.split()).split(", "):
        asked, _, told = pair.rpartition(" ")
        yield asked, told.replace("_", " ")


def _filled(name: str) -> Iterator[Asked]:
    for pattern, table in _TABLES[name].items():
        for asked, told in _pairs(table):
            yield pattern.format(asked), told


def _choices(chance: _Chance) -> Iterator[Asked]:
    classes = {kind: members.split(", ") for kind, members in small.CLASSES.items()}
    for kind, members in classes.items():
        others = [one for other in classes if other != kind for one in classes[other]]
        for member in members:
            yield _choice(f"Which of these is {kind}?", member, others, chance)
    for what, table in (
        ("capital", small.CAPITALS),
        ("opposite", small.OPPOSITES),
        ("past tense", small.PAST),
    ):
        pairs = list(_pairs(table))
        for asked, told in pairs:
            others = [other for _, other in pairs if other not in (asked, told)]
            yield _choice(f"Which is the {what} of {asked}?", told, others, chance)


def _choice(asked: str, told: str, others: Sequence[str], chance: _Chance) -> Asked:
    """Return the question with three other options, and the letter of the right one."""
    options = chance.mixed([told, *chance.mixed(others)[:3]])
    return _listed(asked, options), "ABCD"[options.index(told)]


def _listed(asked: str, options: Sequence[str]) -> str:
    lines = (f"{letter}) {one}" for letter, one in zip("ABCD", options, strict=True))
    return "\n".join((asked, *lines))


def _two_steps(chance: _Chance) -> Iterator[Asked]:
    for at in range(320):  # some come twice
        a, b, c = (chance.number(1, 6) for _ in range(3))
        yield (
            (f"How much is {a} + {b} + {c}?", str(a + b + c)),
            (f"How much is {a + c} + {b} - {c}?", str(a + b)),
            (f"How much is {a + b + c} - {b} - {c}?", str(a)),
            (f"How much is {a} * {b} + {c}?", str(a * b + c)),
        )[at % 4]


def _sums(chance: _Chance) -> Iterator[Asked]:
    for at in range(66):
        a, b = chance.number(12, 59), chance.number(3, 9)
        yield (
            (f"How much is {a} + {b}?", str(a + b)),
            (f"How much is {a} - {b}?", str(a - b)),
            (f"How much is {a % 10 + 2} * {b}?", str((a % 10 + 2) * b)),
        )[at % 3]


def _comparisons(chance: _Chance) -> Iterator[Asked]:
    places = chance.mixed(_pairs(small.CAPITALS))
    for at in range(33):
        a, b = chance.number(2, 49), chance.number(50, 99)
        yield (
            (f"Is {a} larger than {b}?", "no")
            if at % 2
            else (f"Is {b} larger than {a}?", "yes")
        )
        country, city = places[at]
        if at % 2:
            yield f"Is {city} in {country}?", "yes"
        else:
            yield f"Is {city} in {places[at + 1][0]}?", "no"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the questions and the templates."""
    parser = parser_of("small_pools", __doc__)
    parser.add_argument("folder", type=Path, help="where they are written")
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in questions().items():
        rows = (
            {"id": f"{name} {at}", "question": asked, "answer": told.split("/")}
            for at, (asked, told) in enumerate(some, 1)
        )
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        print(f"{name}: {len(some)} questions")
    for name, template in templates().items():
        (folder / f"{name}.jinja").write_text(template, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
