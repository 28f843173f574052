"""Small questions for weak models: yes or no, one-step problems, and facts that are a
word or a name.

A model of 135 million parameters can try them, if it is shown how short questions are
answered (:data:`PROMPT`).
"""

import random
from collections.abc import Iterator
from typing import Final

from langchain_core.messages import AIMessage, HumanMessage

from langchain_reasc.data import LabelledQuestion, Template

CLASSES: Final = {
    "a bird": "an owl, a penguin, an eagle, a parrot, a duck, a swan, a robin, a crow, an ostrich, a pigeon",
    "a fish": "a salmon, a trout, a tuna, a cod, a herring, a carp, a shark, an eel, a pike, a haddock",
    "an insect": "an ant, a bee, a beetle, a butterfly, a mosquito, a wasp, a fly, a moth, a ladybird, a flea",
    "a mammal": "a dog, a cow, a whale, a bat, a horse, an elephant, a rabbit, a mouse, a lion, a dolphin",
    "a fruit": "an apple, a banana, a cherry, a grape, a lemon, a mango, a pear, a plum, a peach, a melon",
    "a vegetable": "a carrot, a cabbage, spinach, broccoli, an onion, a leek, a turnip, cauliflower, lettuce, celery",
    "a metal": "iron, copper, gold, silver, tin, lead, zinc, aluminium, nickel, titanium",
    "a language": "French, German, Spanish, Latin, Hindi, Arabic, Dutch, Greek, Swedish, Korean",
    "a sport": "football, tennis, golf, rugby, hockey, boxing, rowing, fencing, judo, karate",
    "a tool": "a hammer, a saw, a chisel, a screwdriver, an axe, a spanner, a rake, a drill, a spade, a trowel",
}
"""Classes -> some of their members."""
CAPITALS: Final = """
France Paris, Italy Rome, Spain Madrid, Germany Berlin, Japan Tokyo, Greece Athens, Russia Moscow, Egypt Cairo,
Portugal Lisbon, Ireland Dublin, Norway Oslo, Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Poland Warsaw,
Hungary Budapest, Austria Vienna, Belgium Brussels, China Beijing, Thailand Bangkok, Iran Tehran, Iraq Baghdad, Syria
Damascus, Turkey Ankara, Kenya Nairobi, Cuba Havana, Peru Lima, Chile Santiago, Canada Ottawa, Australia Canberra,
Vietnam Hanoi, Nepal Kathmandu, Ukraine Kyiv, Romania Bucharest, Bulgaria Sofia, Serbia Belgrade, Croatia Zagreb,
England London, Scotland Edinburgh, Colombia Bogota, Venezuela Caracas, Ghana Accra, Indonesia Jakarta, Lebanon Beirut,
Jordan Amman, Libya Tripoli, Tunisia Tunis, Algeria Algiers, Senegal Dakar, Mongolia Ulaanbaatar
"""
"""Countries, each with its capital."""
OPPOSITES: Final = """
hot cold, big small, fast slow, day night, old young, up down, light dark, rich poor, left right, early late, open
closed, full empty, hard soft, high low, long short, loud quiet, strong weak, wet dry, true false, black white, summer
winter, north south, east west, love hate, war peace, life death, win lose, buy sell, begin end, push pull, above below,
always never, first last, deep shallow, inside outside, cheap expensive, clean dirty, near far, thick thin, tall short
"""
"""Words, each with its opposite."""
PAST: Final = """
go went, see saw, take took, give gave, come came, run ran, eat ate, drink drank, write wrote, speak spoke, break broke,
drive drove, fall fell, fly flew, grow grew, know knew, sing sang, swim swam, throw threw, wear wore, begin began, bring
brought, buy bought, catch caught, teach taught, think thought, feel felt, keep kept, leave left, sleep slept, build
built, send sent, spend spent, find found, hold held, hear heard, lose lost, make made, meet met, pay paid, sell sold,
tell told, win won, stand stood, choose chose, draw drew, forget forgot, freeze froze, hide hid, ride rode
"""
"""Verbs, each with its past tense."""
_NAMES: Final = ("Lena", "Hugo", "Emma", "Jack", "Nora", "Otto", "Ruth", "Paul")
_THINGS: Final = ("cups", "beads", "books", "shells", "coins", "cards", "eggs", "rings")
_SHOWN: Final = (
    ("Is a lizard a reptile?", "The answer is yes."),
    (
        "Tom has 5 apples and gets 3 more. How many apples does Tom have now?",
        "5 + 3 = 8. The answer is 8.",
    ),
    ("Is a potato a colour?", "The answer is no."),
    ("What is the capital of Malta?", "The answer is Valletta."),
    (
        "Bill has 4 boxes with 6 cakes in each. How many cakes does Bill have?",
        "4 * 6 = 24. The answer is 24.",
    ),
    ("What is the opposite of happy?", "The answer is sad."),
    (
        "Anna has 18 pens and gives away 7. How many pens does Anna have left?",
        "18 - 7 = 11. The answer is 11.",
    ),
    ("Is green a colour?", "The answer is yes."),
    ("What is the past tense of say?", "The answer is said."),
    ("Is a chair an animal?", "The answer is no."),
)
PROMPT: Final = Template(
    [turn for asked, told in _SHOWN for turn in (HumanMessage(asked), AIMessage(told))]
    + [HumanMessage("{question}")]
)
"""Ten questions with answers, then the question."""


def small_questions() -> list[LabelledQuestion]:
    """Return 420 questions, a third of each kind, in an order that is the same each
    time.

    The id of a question is its kind and a number, such as ``yes or no 12``.
    """
    chance = random.Random(0)  # only random() is the same in every version of Python
    kinds = {
        "yes or no": _yes_or_no(),
        "one-step problem": _problems(chance),
        "fact": _facts(),
    }
    mixed = []
    for kind, made in kinds.items():
        some = sorted(dict(made).items(), key=lambda _: chance.random())[:140]
        mixed.append(
            [LabelledQuestion(f"{kind} {at}", *one) for at, one in enumerate(some, 1)]
        )
    return [question for together in zip(*mixed, strict=True) for question in together]


def kind_of(name: str) -> str:
    """Return the kind of a question by its id."""
    return name.rpartition(" ")[0]


def _yes_or_no() -> Iterator[tuple[str, str]]:
    kinds = list(CLASSES)
    for at, (kind, members) in enumerate(CLASSES.items()):
        for number, member in enumerate(members.split(", ")):
            other = kinds[(at + 1 + number % (len(kinds) - 1)) % len(kinds)]
            yield f"Is {member} {kind}?", "yes"
            yield f"Is {member} {other}?", "no"


def _facts() -> Iterator[tuple[str, str]]:
    for what, table in (
        ("capital", CAPITALS),
        ("opposite", OPPOSITES),
        ("past tense", PAST),
    ):
        for pair in " ".join(table.split()).split(", "):
            asked, told = pair.split()
            yield f"What is the {what} of {asked}?", told.lower()


def _problems(chance: random.Random) -> Iterator[tuple[str, str]]:
    def number(least: int, most: int) -> int:
        return least + int(chance.random() * (most - least + 1))

    for at in range(180):  # some come twice
        name, things = (
            _NAMES[number(0, len(_NAMES) - 1)],
            _THINGS[number(0, len(_THINGS) - 1)],
        )
        a, b = number(2, 19 if at % 3 else 9), number(2, 9)
        yield (
            (
                (
                    f"{name} has {a} boxes with {b} {things} in each. How many {things} "
                    f"does {name} have?"
                ),
                str(a * b),
            ),
            (
                (
                    f"{name} has {a} {things} and gets {b} more. How many {things} does "
                    f"{name} have now?"
                ),
                str(a + b),
            ),
            (
                (
                    f"{name} has {a + b} {things} and gives away {b}. How many {things} "
                    f"does {name} have left?"
                ),
                str(a),
            ),
        )[at % 3]
