"""The sentences that problems are made of: names, things, kinds of event and how each
is asked and solved.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of event.

    Slots: S the subject, P the subject or a pronoun, T another person, o the things
        counted, n/m/a/b/k numbers,
    e1/e2 the equations.
    """

    name: str
    family: str
    unit: str
    asked: tuple[str, ...]
    plain: str = ""
    verbose: str = ""
    operations: int = 1
    unit_after: str = ""
    other: bool = False
    switches: bool = False


_FEMALE = (
    "Ada Bella Clara Dina Emma Fay Grace Hana Iris Julia Kira Lena Maya Nora Olga Rosa"
)
_MALE = "Adam Ben Carl Dan Eli Finn Gus Hugo Ivan Jack Karl Leo Max Noah Omar Paul"
NAMES = [(name, "She") for name in _FEMALE.split(" ")] + [
    (name, "He") for name in _MALE.split(" ")
]
_OBJECTS = (
    "apples books cards coins shells stamps marbles pens roses beads plums cups "
    "buttons stones kites toys eggs nuts stickers candles"
)
OBJECTS = tuple(_OBJECTS.split(" "))
DISTRACTORS = (
    "{T} has {n} {o}.",
    "The bus ride takes {n} minutes.",
    "It is {n} degrees outside.",
    "There are {n} {o} on the table of {T}.",
    "The road is {n} miles long.",
    "{T} lives in house number {n}.",
)

# fmt: off
STARTS = (
    Kind("have", "start", "", ("{S} has {n} {o}.", "{S} starts with {n} {o}.", "At first, {S} has {n} {o}."),
         "{S} has {n}.", "{S} has {n} {o} at the start.", 0, "item"),
    Kind("boxes", "product", "",
         ("{S} has {a} boxes with {b} {o} in each box.", "{S} buys {a} boxes of {b} {o}.",
          "There are {b} {o} in a box, and {S} has {a} boxes."),
         "{S} has {e1}.", "{S} has {a} boxes with {b} {o} each, which makes {e1} {o}.", 1, "item"),
    Kind("rate", "product", "",
         ("{S} collects {b} {o} an hour and works for {a} hours.",
          "In one hour {S} collects {b} {o}. {S} works {a} hours."),
         "{S} collects {e1}.", "{S} collects {b} {o} an hour for {a} hours, which makes {e1} {o}.", 1, "item"),
    Kind("colors", "sum", "",
         ("{S} has {m} red {o} and {n} blue {o}.", "{S} has {m} old and {n} new {o}."),
         "{S} has {e1}.", "{S} has two kinds of {o}, which makes {e1} {o} in all.", 1, "item"),
    Kind("money", "start", "", ("{S} has {n} dollars.", "{S} has saved {n} dollars.", "At first, {S} has {n} dollars."),
         "{S} has {n}.", "{S} has {n} dollars at the start.", 0, "money"),
    Kind("wage", "product", "",
         ("{S} earns {b} dollars an hour and works for {a} hours.", "{S} works {a} hours at {b} dollars an hour."),
         "{S} earns {e1}.", "{S} earns {b} dollars an hour for {a} hours, which makes {e1} dollars.", 1, "money"),
)

EVENTS = (
    Kind("gain", "add", "item",
         ("{P} finds {n} more {o}.", "Then {S} gets {n} {o} from a friend.", "{P} picks up another {n} {o}."),
         "{S} gets {n}: {e1}.", "{S} gets {n} more {o}, so now {S} has {e1} {o}."),
    Kind("lose", "subtract", "item",
         ("{P} loses {n} {o}.", "Then {S} gives {n} {o} away.", "{P} breaks {n} of the {o}."),
         "{S} loses {n}: {e1}.", "{S} loses {n} of the {o}, so now {S} has {e1} {o}."),
    Kind("packs", "+product", "item",
         ("{P} buys {a} packs of {b} {o}.", "Then {S} gets {a} bags with {b} {o} in each."),
         "Packs: {e1}, so {e2}.", "The packs hold {e1} {o}, so now {S} has {e2} {o}.", 2),
    Kind("trays", "-product", "item",
         ("{P} fills {a} trays with {b} {o} each and sends them off.",
          "Then {S} gives {b} {o} to each of {a} friends."),
         "Gone: {e1}, so {e2}.", "That takes away {e1} {o}, so now {S} has {e2} {o}.", 2),
    Kind("days", "+product", "item",
         ("For {a} days, {S} finds {b} {o} each day.", "{P} gets {b} more {o} every day for {a} days."),
         "Days: {e1}, so {e2}.", "In these days {S} gets {e1} {o}, so now {S} has {e2} {o}.", 2),
    Kind("double", "x2", "item", ("{P} doubles the number of {o}.", "Soon {S} has twice as many {o}."),
         "Double: {e1}.", "The number doubles, so now {S} has {e1} {o}."),
    Kind("triple", "x3", "item", ("{P} triples the number of {o}.", "Soon {S} has three times as many {o}."),
         "Triple: {e1}.", "The number triples, so now {S} has {e1} {o}."),
    Kind("half", "/2", "item", ("{P} gives half of the {o} away.", "Then {S} loses half of the {o}."),
         "Half: {e1}.", "Half of the {o} are gone, so now {S} has {e1} {o}."),
    Kind("third", "-1/3", "item", ("{P} gives a third of the {o} away.", "Then {S} loses one third of the {o}."),
         "A third: {e1}, so {e2}.", "A third of the {o} is {e1}, so now {S} has {e2} {o}.", 2),
    Kind("quarter", "-1/4", "item", ("{P} gives a quarter of the {o} away.", "Then {S} loses one quarter of the {o}."),
         "A quarter: {e1}, so {e2}.", "A quarter of the {o} is {e1}, so now {S} has {e2} {o}.", 2),
    Kind("percent", "-%", "item", ("{P} gives {k} percent of the {o} away.", "Then {S} loses {k} percent of the {o}."),
         "Percent: {e1}, so {e2}.", "Of the {o}, {k} percent is {e1}, so now {S} has {e2} {o}.", 2),
    Kind("sell", "times", "item",
         ("{P} sells all the {o} for {k} dollars each.", "Then {S} sells every one of the {o} for {k} dollars."),
         "Sale: {e1}.", "{S} sells them for {k} dollars each, so now {S} has {e1} dollars.", 1, "money"),
    Kind("more", "add", "any", ("{T} has {n} more {o} than {S}.", "{T} has {n} {o} more than {S} has."),
         "{T} has {n} more: {e1}.", "{T} has {n} more than {S}, so {T} has {e1} {o}.", 1, "", True, True),
    Kind("fewer", "subtract", "any", ("{T} has {n} fewer {o} than {S}.", "{T} has {n} {o} fewer than {S} has."),
         "{T} has {n} fewer: {e1}.", "{T} has {n} fewer than {S}, so {T} has {e1} {o}.", 1, "", True, True),
    Kind("as_many", "times", "any", ("{T} has {k} times as many {o} as {S}.", "{T} has {k} times the {o} of {S}."),
         "{T} has {k} times: {e1}.", "{T} has {k} times as many as {S}, so {T} has {e1} {o}.", 1, "", True, True),
    Kind("join", "both", "any",
         ("{T} has {n} more {o} than {S} and gives all of them to {S}.",
          "{T}, who has {n} more {o} than {S}, gives {S} all of them."),
         "{T} has {e1}, so {e2}.", "{T} has {e1} {o} to give, so now {S} has {e2} {o}.", 2, "", True),
    Kind("earn", "add", "money", ("{P} earns {n} more dollars.", "Then {S} gets a gift of {n} dollars."),
         "{S} gets {n}: {e1}.", "{S} gets {n} more dollars, so now {S} has {e1} dollars."),
    Kind("spend", "subtract", "money", ("{P} spends {n} dollars.", "Then {S} pays {n} dollars for a book."),
         "{S} pays {n}: {e1}.", "{S} pays {n} dollars, so now {S} has {e1} dollars."),
    Kind("shop", "-product", "money",
         ("{P} buys {a} shirts for {b} dollars each.", "Then {S} buys {a} tickets that cost {b} dollars each."),
         "Cost: {e1}, so {e2}.", "They cost {e1} dollars, so now {S} has {e2} dollars.", 2),
    Kind("shift", "+product", "money",
         ("{P} works {a} more hours for {b} dollars an hour.", "Then {S} washes {a} cars for {b} dollars each."),
         "Work: {e1}, so {e2}.", "The work brings {e1} dollars, so now {S} has {e2} dollars.", 2),
    Kind("spend_half", "/2", "money",
         ("{P} spends half of the money.", "Then {S} gives half of the money to a sister."),
         "Half: {e1}.", "Half of the money is gone, so now {S} has {e1} dollars."),
    Kind("tax", "-%", "money",
         ("{P} pays {k} percent of the money as tax.", "Then {S} spends {k} percent of the money."),
         "Percent: {e1}, so {e2}.", "Of the money, {k} percent is {e1}, so now {S} has {e2} dollars.", 2),
)

QUESTIONS = (
    Kind("now", "none", "any", ("How many {o} does {S} have now?", "How many {o} does {S} have in the end?"),
         "", "", 0),
    Kind("share", "divide", "any",
         ("{P} shares the {o} equally among {k} friends. How many {o} does each friend get?",
          "If {k} friends share all the {o} equally, how many {o} does each get?"),
         "Each gets {e1}.", "The {k} friends share equally, so each friend gets {e1} {o}."),
    Kind("bags", "divide", "item",
         ("{P} puts the {o} into bags of {k}. How many bags does {S} fill?",
          "How many bags does {S} need to pack the {o}, with {k} in each bag?"),
         "Bags: {e1}.", "With {k} {o} in a bag, {S} fills {e1} bags."),
    Kind("goal", "reach", "any",
         ("{P} wants to have {n} {o}. How many more {o} does {S} need?",
          "How many more {o} does {S} need to have {n} {o}?"),
         "{S} needs {e1}.", "To have {n} {o}, {S} needs {e1} more {o}."),
    Kind("lead", "subtract", "any",
         ("{T} has {n} {o}. How many more {o} does {S} have than {T}?",
          "How many more {o} does {S} have than {T}, who has {n} {o}?"),
         "{S} leads by {e1}.", "{T} has {n} {o}, so {S} has {e1} more {o} than {T}.", 1, "", True),
    Kind("both", "add", "any",
         ("{T} has {n} {o}. How many {o} do {S} and {T} have together?",
          "How many {o} do {S} and {T} have together, if {T} has {n} {o}?"),
         "Both have {e1}.", "{T} has {n} {o}, so together they have {e1} {o}.", 1, "", True),
)
# fmt: on
