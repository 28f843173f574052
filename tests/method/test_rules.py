"""All rules by name, and what holds for every one of them."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import (
    ASC,
    ESC,
    WEIGHTS,
    Agreement,
    Cap,
    FiniteHorizon,
    Lead,
    Prior,
    Race,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    decide,
    rule_named,
    rules,
)

from .by_hand import SCORES, check_that_a_stop_stands, outcome

NEEDED: dict[str, dict[str, object]] = {"reasc": {"mean": 1.0, "std": 0.5, "gate": 1.8}}
BY_EQ_5 = {"fixed_budget", "asc", "esc", "reasc", "finite_horizon", "cannot_catch_up", "lead", "race"}
ALL = [rule_named(name, NEEDED.get(name)) for name in rules()]
COMPOSED = [
    Race(2) & Cap(3),
    ReASC(Standardizer(0.5, 0.3), gate=1.5) | ESC(2),
    ASC(0.8) & ESC(3),
    (ASC(0.9) | ESC(2)) & Cap(4),
]
AGREEMENT = [Agreement(Prior.uniform(), 0.9, 8, scores) for scores in (None, SCORES)]

tenths = st.integers(0, 20).map(lambda tenths: tenths / 10)  # few different ones, so that mixtures are fitted seldom
some = st.lists(st.builds(Response, st.sampled_from(["a", "b", "c", None]), tenths), max_size=8)
of_kinds = st.lists(
    st.builds(Response, st.sampled_from(["a", "b", None]), tenths, st.booleans(), st.sampled_from(["search", None])),
    max_size=8,
)
every_rule = pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
any_rule = pytest.mark.parametrize("rule", [*ALL, *COMPOSED, *AGREEMENT], ids=lambda rule: f"{rule!s:.60}")
quickly = examples(20)


def rule_and_scores() -> tuple[st.SearchStrategy[StoppingRule], st.SearchStrategy[float]]:
    """Rules of any parameters, composed too, and scores for them."""
    scores, confidences = st.floats(-5, 5, allow_nan=False), st.floats(0.55, 0.99)
    by = st.builds(Standardizer, mean=st.floats(0.1, 2), std=st.floats(0.2, 3), scale=st.floats(0.1, 2))
    reasc = st.builds(ReASC, by, st.none() | scores, st.sampled_from(sorted(WEIGHTS)), confidences)
    budgets, windows = st.builds(Cap, st.integers(1, 20)), st.builds(ESC, st.integers(1, 5))
    simple: st.SearchStrategy[StoppingRule] = st.one_of(budgets, st.builds(ASC, confidences), windows, reasc)
    either, both = st.builds(lambda a, b: a | b, simple, simple), st.builds(lambda a, b: a & b, simple, simple)
    return st.one_of(simple, either, both), scores


def test_names_are_those_of_accounts() -> None:
    own = ["fixed_budget", "asc", "esc", "reasc", "finite_horizon", "cannot_catch_up", "lead", "race"]
    assert list(rules())[: len(own)] == own
    assert rules().keys() == {*own, "cisc", "deepconf_filter"}
    assert all(rule.name == name for name, rule in zip(rules(), ALL, strict=True))


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("asc", None, ASC()),
        ("finite_horizon", {"phi": 0.9, "budget": 8}, FiniteHorizon(0.9, 8)),
        (
            "reasc",
            {"mean": 1.0, "std": 2.0, "scale": 0.5, "gate": None, "on_missing_confidence": "count"},
            ReASC(Standardizer(1.0, 2.0, 0.5), on_missing_confidence="count"),
        ),
        ("lead", {"k": 2}, Lead(2)),
    ],
)
def test_a_rule_is_made_by_name_and_is_a_value(name: str, parameters: Any, expected: StoppingRule) -> None:
    made = rule_named(name, parameters)
    assert made == expected and hash(made) == hash(expected)
    with pytest.raises(FrozenInstanceError):
        made.budget = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("ascii", {}, "'ascii'.*fixed_budget, asc, esc"),
        ("ahead_by", {"k": 3}, "'ahead_by'.*cannot_catch_up, lead, race"),
        ("asc", {"gate": 1.0, "phi": 1}, "asc .*'gate', 'phi'.*confidence"),
        ("reasc", {"statistics": 1.0}, "'statistics'.*mean, std, scale, gate, weight"),
        ("reasc", {}, "'mean', 'std'"),
        ("finite_horizon", {"phi": "high"}, "finite_horizon .*phi='high'"),
        ("finite_horizon", {"phi": 2.0}, "phi .*got 2.0"),
    ],
)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rule_named(name, parameters)


@every_rule
def test_without_answers_nothing_is_decided(rule: StoppingRule) -> None:
    silences = [[], [Response(None)], [Response(None, cut_off=True)] * 20]
    for silent in silences[:1] if isinstance(rule, Cap | Race) else silences:
        decision = decide(rule, silent)
        assert outcome(decision) == (False, None, None, len(silent))
        assert decision.posterior == pytest.approx(0.5 if rule.name in BY_EQ_5 else 0.0, abs=1e-12)
        assert rule.weights(silent) == [0.0 if rule.reads_scores else 1.0] * len(silent)
    ended = decide(rule | Cap(2), [Response(None)] * 2)
    assert ended.undecided and ended.answer is None
    assert ended.reason == ("contested" if isinstance(rule, Race) else "budget")


@any_rule
@quickly
@given(given=some.filter(bool), later=some, mixed=of_kinds.filter(bool), names=st.permutations("abc"))
def test_a_decision_depends_on_what_was_seen_by_then_and_not_on_names(
    rule: StoppingRule, given: list[Response], later: list[Response], mixed: list[Response], names: list[str]
) -> None:
    check_that_a_stop_stands(rule, given, later)
    check_that_a_stop_stands(rule, mixed, later)
    renamed: dict[str | None, Any] = {**dict(zip("abc", names, strict=True)), None: None}
    decision = decide(rule, given)
    other = decide(rule, [replace(one, answer=renamed[one.answer]) for one in given])
    assert (other.stop, other.samples, other.answer) == (decision.stop, decision.samples, renamed[decision.answer])
    assert other.posterior == decision.posterior and 0.0 <= decision.posterior <= 1.0


@pytest.mark.parametrize("rule", [*ALL, *AGREEMENT], ids=lambda rule: f"{rule!s:.60}")
@quickly
@given(given=some, one=st.sampled_from(ALL), score=tenths)
def test_what_a_rule_says_of_itself_holds_and_rules_compose(
    rule: StoppingRule, given: list[Response], one: StoppingRule, score: float
) -> None:
    if not rule.reads_scores:
        assert decide(rule, [replace(one, score=None) for one in given]) == decide(rule, given)
    if rule.first_wave != 1 and not isinstance(rule, Cap | ReASC):
        assert not rule([Response("a", score)]).stop
    of_a_kind = [replace(one, kind="search") for one in given]
    assert replace(decide(rule, of_a_kind), parts={}) == decide(rule, given)
    left, right, either, both = rule(given), one(given), (rule | one)(given), (rule & one)(given)
    assert (either.stop, both.stop) == (left.stop or right.stop, left.stop and right.stop)
    assert either.answer == both.answer == left.answer
    assert either.evidence == both.evidence == left.evidence


@given(some, st.floats(0.55, 0.99))
def test_count_weights_are_asc(given: list[Response], confidence: float) -> None:
    counting = ReASC(Standardizer(0.0, 1.0), weight="count", confidence=confidence)
    assert decide(counting, given) == decide(ASC(confidence), given)


@any_rule
@quickly
@given(given=some)
def test_a_response_without_answer_never_votes_and_a_tie_goes_to_the_first(
    rule: StoppingRule, given: list[Response]
) -> None:
    before, after = rule(given), rule([*given, Response(None, 1.0)])
    assert after.evidence == before.evidence and None not in after.evidence
    tied = [answer for answer, weight in before.evidence.items() if weight == max(before.evidence.values())]
    if rule == AGREEMENT[1]:  # by scores the likeliest answer is another
        assert before.answer == after.answer and (before.answer in before.evidence or not before.evidence)
    else:
        assert before.answer == next(iter(tied), None) or before.reason == "window"
