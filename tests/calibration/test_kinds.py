"""Kinds of request, learned apart: what makes a kind, what each borrows, what is kept of each, and what is no drift."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from runnable.fakes import TOP_K, Scripted

from langchain_reasc.calibration import (
    KEPT,
    KEPT_OF_KIND,
    MOST_KINDS,
    Learner,
    Observation,
    Observations,
    ObservationStore,
    fit,
)
from langchain_reasc.method.stopping import ASC, Cap, decide
from langchain_reasc.models.fingerprint import fingerprint_of

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
OTHER: dict[str, Any] = {"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}
ASKED = [SystemMessage("Be brief."), HumanMessage("Who?")]


def kind(messages: Any = ASKED, answer: str = "number", model: str = "some-model", **kwargs: Any) -> str:
    return fingerprint_of(Scripted(script=str, model_name=model), kwargs=kwargs, messages=messages, answer=answer).kind


@pytest.mark.parametrize(
    ("asked", "differs"),
    [
        ({"messages": [SystemMessage("Be brief."), HumanMessage("When?")]}, False),
        ({"messages": [SystemMessage("Be brief."), HumanMessage("Who?"), HumanMessage("And when?")]}, False),
        ({"temperature": 0.3, "max_tokens": 20, "stop": ["\n"]}, False),
        ({"messages": [SystemMessage("Be long."), HumanMessage("Who?")]}, True),
        ({"messages": [HumanMessage("Who?")]}, True),
        ({"tools": [TOOL]}, True),
        ({"response_format": {"type": "json_object"}}, True),
        ({"answer": "boxed"}, True),
        ({"model": "another"}, True),
    ],
)
def test_a_kind_is_what_is_asked_besides_a_question(asked: dict[str, Any], differs: bool) -> None:
    assert (kind(**asked) != kind()) == differs


def test_the_order_of_tools_makes_no_kind() -> None:
    assert kind(tools=[TOOL, OTHER]) == kind(tools=[OTHER, TOOL]) != kind(tools=[TOOL])


def question(at: int, name: str, agreeing: float) -> Observation:
    """A question to which so large a share of 8 responses agrees, on average; those that do score higher by 2.5."""
    rng = np.random.default_rng([at, len(name)])
    right = rng.random(8) < agreeing
    answers = np.where(right, 0, rng.integers(1, 4, 8)).tolist()
    scores = (2.5 * right + rng.normal(size=8))[None]
    return Observation(tuple(answers), scores, decided=8, answer=0, id=f"{name} {at}", kind=name)


def learned(counts: dict[str, tuple[int, float]]) -> Learner:
    """Learn from so many questions of each kind with such agreement, by turns."""
    one = Learner([TOP_K], explained=False)
    turns = [(at / count, name) for name, (count, _) in counts.items() for at in range(count)]
    for at, (_, name) in enumerate(sorted(turns)):
        one.observe(question(at, name, counts[name][1]))
    return one


def agreement(one: Learner, name: str | None) -> float:
    """Return how often one more response is expected to agree with a first one; ``None``: where all are one kind."""
    calibration = one.calibration_of(name)
    assert calibration is not None and calibration.rule_ is not None
    return calibration.rule_.agreement_prior.share([1])


@pytest.mark.full
def test_each_kind_is_learned_apart_and_borrows_while_it_is_small() -> None:
    one = learned({"easy": (120, 0.97), "hard": (80, 0.4), "new": (20, 0.4), "seen once": (1, 0.4)})
    easy, hard, new, every = (agreement(one, name) for name in ("easy", "hard", "new", None))
    assert easy > every > new > hard
    assert one.calibration_of("seen once") is None
    calibration = one.calibration
    assert calibration is not None and calibration.measure == TOP_K
    for name, own_scores in (("easy", True), ("hard", True), ("new", False)):
        own = one.calibration_of(name)
        assert own is not None and own.rule_ is not None and calibration.rule_ is not None
        assert (own.rule_.scores != calibration.rule_.scores) == own_scores, "of few questions scores are those of all"


def test_what_is_promised_of_all_is_not_promised_of_a_kind() -> None:
    questions = [question(at, "easy", 0.97) for at in range(40)]
    whole = fit(questions, [TOP_K])
    own = fit(questions[:20], [TOP_K], whole=whole)
    assert whole.guarantee is not None and own.guarantee is None and own.n == 20


def test_one_kind_alone_is_all_of_it() -> None:
    one = learned({"only": (60, 0.8)})
    assert one.calibration is not None and one.calibration_of("only") is None


@pytest.mark.full
def test_the_file_holds_the_kinds(tmp_path: Path) -> None:
    one = learned({"easy": (90, 0.97), "hard": (30, 0.4)})
    written = ObservationStore.create(tmp_path / "online.sqlite")
    rows = [written.append(each, one.measures)[1] for each in one.observations]
    written.close()
    learners = [Learner([TOP_K], explained=False) for _ in range(2)]
    learners[0].observations = ObservationStore.open(tmp_path / "online.sqlite").observations([TOP_K])
    learners[1].observations.extend(enumerate(rows, start=1))
    for learner in learners:
        learner.calibrate()
    for name in ("easy", "hard", None):
        first, second = (learner.calibration_of(name) for learner in learners)
        assert first is not None and second is not None
        assert first == second.model_copy(update={"created_at": first.created_at})


@pytest.mark.full
def test_the_last_of_each_kind_are_kept() -> None:
    known = Observations()
    for at in range(1500):
        name = "rare" if at < 200 else "seldom" if at % 100 == 0 else "usual"
        known.append(replace(question(at, name, 0.9), counted=False))
    assert Counter(each.kind for each in known) == {"rare": KEPT_OF_KIND, "seldom": 13, "usual": KEPT - 5}
    assert [each.kind for each in known.newest].count("usual") == KEPT - 5


@pytest.mark.slow  # learns of thousands of questions
def test_kinds_that_come_once_push_no_other_out(tmp_path: Path) -> None:
    one = Learner([TOP_K], explained=False)
    for at in range(10 * MOST_KINDS):
        one.observe(question(at, "often", 0.9))
        one.observe(question(at, f"system prompt with the time of day, {at}", 0.9))
    known = one.observations
    assert len(known.kinds) == MOST_KINDS and known.kinds["often"] == KEPT / 2
    assert len(known) < KEPT + MOST_KINDS and one.calibration_of("often") is not None


@pytest.mark.full
@pytest.mark.parametrize("apart", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_mix_that_changes_is_no_drift_where_kinds_are_apart(apart: bool) -> None:
    one, rng = Learner([TOP_K], explained=False), np.random.default_rng(0)
    for at in range(420):
        hard = rng.random() < (0.1 if at < 210 else 0.9)
        given = question(at, "hard" if hard else "easy", 0.45 if hard else 0.97)
        calibration = one.calibration_of(given.kind if apart else "") or one.calibration
        rule = calibration.rule() if calibration else ASC()
        decision = decide(rule | Cap(7), given.responses(0)[:7])
        drawn, answer = decision.samples + 1, int(decision.answer or 0)
        seen = replace(given, answers=given.answers[:drawn], scores=given.scores[:, :drawn], decided=decision.samples)
        one.observe(replace(seen, answer=answer, counted=calibration is None, kind=given.kind if apart else ""))
    assert bool(one.observations.restarts) == (not apart)
