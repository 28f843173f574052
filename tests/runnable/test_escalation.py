"""``escalate_to``: a small model answers where its votes are equal, and a large one where they are not."""

import copy
import pickle
import threading
import time
import traceback
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.exceptions import ContextOverflowError, ModelAuthenticationError, ModelRateLimitError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import ConfigurableField
from pydantic import BaseModel, ValidationError
from sampling.tracers import Runs

from langchain_reasc import ASC, ChatReASC, Escalation, ReASCMiddleware, ReASCRunnable
from langchain_reasc.answers import free_text
from langchain_reasc.calibration import SupportCurve
from langchain_reasc.complaints import forget_warnings
from langchain_reasc.exceptions import (
    ConfigurationError,
    ModelClosedError,
    ModelFileError,
    SamplingError,
    Undecided,
)
from langchain_reasc.method import FiniteHorizon, FirstConfident, Race

from .conftest import cancelled
from .fakes import PROMPT_TOKENS, TOP_K, Reply, Scripted, calibration, failing, saying
from .judges import metered

DOWN = Reply("", error=ConnectionError("down"))
SAID = PROMPT_TOKENS + 4  # tokens of a response that says "the answer is X"


def decided_by(calibration: Any) -> dict[str, Any]:
    """The options that learn, or those of the race."""
    return {"rule": "race"} if calibration is None else {"calibration": calibration}


def pair(small: Any, large: Any = None, *, calibration: Any = None, **options: Any) -> ReASCRunnable:
    larger = saying("9") if large is None else large
    return ReASCRunnable(model=small, escalate_to=larger, **{**decided_by(calibration), **options})


def asked(reasc: Any) -> tuple[int, int]:
    """How often each model was asked."""
    return len(reasc.model.log.calls), len(reasc.larger.log.calls)


def billed(*models: Scripted) -> int:
    """Tokens that scripted models billed: the prompt of every call, and what was generated."""
    return sum(PROMPT_TOKENS * len(one.log.calls) + sum(one.log.tokens.values()) for one in models)


def larger_answers(account: Any) -> bool:
    """Whether the large model's answer is the result, and the small one was asked to learn."""
    return account["answered_by"] == "large" and account["shadowed"] and [*account["models"]] == ["small", "large"]


@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
def test_without_a_rule_and_a_calibration_it_learns(runner: Any, kind: Any) -> None:
    by_default = kind(model=saying("1"), escalate_to=saying("1"), answer="auto")
    named = kind(model=saying("1"), escalate_to=saying("1"), answer="auto", calibration="online")
    for reasc in (by_default, named):
        assert larger_answers(runner.account(reasc, "q"))
        assert reasc.learned.escalation.rows == 1
    assert by_default.calibrator.learns_of == named.calibrator.learns_of
    raced = by_default.model_copy(update={"rule": "race"})
    account = runner.account(raced, "q")
    assert (account["answered_by"], account["method"], "guarantee" in account) == ("small", "race", False)
    assert raced.calibrator is None and raced.learned is None
    alone = by_default.model_copy(update={"escalate_to": None})
    assert alone.calibrator is None, "one model counts votes by default"


def test_a_race_may_be_shorter_or_longer(runner: Any) -> None:
    for votes in (1, 2, 4):
        reasc = pair(saying("1"), rule=f"race:votes={votes}")
        assert runner.account(reasc, "q")["samples"] == votes


CUT = Reply("the answer is 1", metadata={"finish_reason": "length"})
FILTERED = Reply("", metadata={"finish_reason": "content_filter"})


@pytest.mark.parametrize(
    ("small", "by", "answer", "reason", "samples"),
    [
        (["1", "1", "1"], "small", "1", "unanimous", (3, 0)),
        (["1", "2"], "large", "9", "escalated", (2, 1)),
        (["1", "1", "2"], "large", "9", "escalated", (3, 1)),
        ([Reply("I cannot tell."), "1"], "large", "9", "escalated", (2, 1)),
        ([CUT, "1"], "large", "9", "escalated", (2, 1)),
        (["1", "1", CUT], "large", "9", "escalated", (3, 1)),
        ([Reply(""), "1"], "large", "9", "escalated", (2, 1)),
        ([FILTERED, "1"], "large", "9", "escalated", (2, 1)),
        ([DOWN, "1", "1", "1"], "small", "1", "unanimous", (4, 0)),
        ([DOWN], "large", "9", "escalated", (2, 1)),
    ],
    ids=str,
)
def test_equal_votes_stand_and_all_else_goes_to_the_large_model(
    runner: Any, small: list[Any], by: str, answer: str, reason: str, samples: tuple[int, int]
) -> None:
    reasc = pair(saying(*small))
    result = runner.solve(reasc, "q")
    account = result.message.response_metadata["reasc"]
    assert asked(reasc) == samples
    assert (account["answered_by"], result.answer, result.decision.reason) == (by, answer, reason)
    assert (account["answer"], account["reason"]) == (answer, reason) and not result.undecided
    assert f"the answer is {answer}" in result.message.text
    counted = {name: told["launched"] for name, told in account["models"].items()}
    assert counted == {name: count for name, count in zip(("small", "large"), samples, strict=True) if count}
    assert "shadowed" not in account and "guarantee" not in account


def test_the_account_says_what_each_model_answered(runner: Any) -> None:
    reasc = pair(saying("1", "1", "2"))
    account = runner.account(reasc, "q")
    told = {name: account["models"]["small"][name] for name in ("answer", "evidence", "reason")}
    assert told == {"answer": "1", "evidence": {"1": 2.0, "2": 1.0}, "reason": "contested"}
    told = {name: account["models"]["large"][name] for name in ("answer", "evidence", "reason")}
    assert told == {"answer": "9", "evidence": {"9": 1.0}, "reason": "answered"}
    result = runner.solve(reasc, "q")
    assert "(1: 2, 2: 1)" in result.summary()
    assert "9" in str(result) and "9" in result._repr_html_()


@pytest.mark.parametrize("price", [10.0, ((1.0, 2.0), (30.0, 60.0))], ids=["ratio", "dollars"])
@pytest.mark.parametrize(
    ("small", "large"),
    [
        (["1"], ["9"]),
        (["1", "2"], ["9"]),
        (["1", Reply("so it is 2", usage=False)], ["9"]),
        (["1", "2"], [Reply("the answer is 9", usage=False)]),
        (["1", "2"], [Reply("it broke here", error=ConnectionError("down"), usage=False)]),
        ([Reply("it broke here", error=ConnectionError("down"), usage=False)], ["9"]),
        (["1", DOWN, "2"], ["9"]),
    ],
    ids=["small", "escalated", "small unreported", "large unreported", "large fails", "small fails", "one fails"],
)
def test_the_bill_is_of_every_response_of_both(runner: Any, small: list[Any], large: list[Any], price: Any) -> None:
    reasc = pair(saying(*small), Escalation(saying(*large), prices=price), concurrency=1)
    result = runner.solve(reasc, "q")
    account, bill = result.message.response_metadata["reasc"], result.message.usage_metadata
    assert bill == result.usage.bill and bill["total_tokens"] == bill["input_tokens"] + bill["output_tokens"]
    assert account["tokens"]["output"] == bill["output_tokens"] == sum(one.output_tokens for one in result.responses)
    models, prices = account["models"], price if isinstance(price, tuple) else ((1e6, 1e6), (1e7, 1e7))
    for name, tokens in (("input", "input_tokens"), ("output", "output_tokens")):
        assert sum(one[name] for one in models.values()) == bill[tokens]
    for one, (prompt, generated) in zip(("small", "large"), prices, strict=True):
        if told := models.get(one):
            assert told["cost"] == pytest.approx((told["input"] * prompt + told["output"] * generated) / 1e6)
    assert sum(one["launched"] for one in models.values()) == account["launched"] == len(result.responses)
    assert sum(asked(reasc)) == len(result.responses)
    assert account["failed"] == len(result.failures)
    assert [one.index for one in result.responses] == [*range(len(result.responses))]
    assert sum(one.used for one in result.responses) == result.decision.samples
    unused = sum(one.output_tokens for one in result.responses if not one.used)
    assert result.usage.unused_output_tokens == account["tokens"]["unused_output"] == unused
    unreported = any(isinstance(one, Reply) and one.usage is False for one in [*small, *large])
    assert result.usage.estimated == unreported
    if not unreported and not result.failures:
        assert bill["total_tokens"] == billed(reasc.model, reasc.larger)


@pytest.mark.parametrize(
    ("small", "undecided", "expected"),
    [
        (["1", "1", "2"], "answer", "1"),
        (["1", "1", "2"], "abstain", ""),
        (["1", "1", "2"], "raise", SamplingError),
        ([DOWN], "answer", SamplingError),
        ([DOWN], "abstain", SamplingError),
        ([DOWN], "raise", SamplingError),
    ],
    ids=str,
)
def test_a_large_model_that_is_down(runner: Any, small: list[Any], undecided: Any, expected: Any) -> None:
    down = Reply("", error=ConnectionError("the large one is down"))
    reasc = pair(saying(*small), saying(down), on_undecided=undecided)
    if not isinstance(expected, str):
        with pytest.raises(expected, match="the large one is down"):
            runner.invoke(reasc, "q")
        return
    account = runner.account(reasc, "q")
    assert (account["answered_by"], account["answer"], account["reason"]) == ("small", "1", "contested")
    assert account.get("abstained", False) == (expected == "")
    assert "large model failed" in account["notices"][0]
    assert account["failed_model"] == "large" and "the large one is down" in account["failed_because"]
    assert account["models"]["large"]["reason"] == "failed"
    assert account["launched"] == 4 and account["failed"] == 1


def test_a_small_model_that_is_down_is_named_beside_the_answer(runner: Any) -> None:
    result = runner.solve(pair(saying(DOWN)), "q")
    assert "failed" in result.summary()
    account = result.message.response_metadata["reasc"]
    assert "small model failed" in account["notices"][0] and "SamplingError" not in account["notices"][0]
    assert "SamplingError(" in result.notices[0]
    assert account["failed_model"] == "small" and account["failed_because"].startswith("SamplingError(")
    assert account["models"]["small"] | {"cost": 0} == {
        "answer": None, "evidence": {}, "reason": "failed", "launched": 2, "input": 0, "output": 0, "cost": 0
    }  # fmt: skip


class Place(BaseModel):
    at: int


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Place.model_validate({})
    return caught.value


WRONG_CALLS = [
    TypeError("create() got an unexpected keyword argument 'cache_control'"),
    AttributeError("no such method"),
    NotImplementedError("no tools"),
    ImportError("not installed"),
    invalid(),
    ConfigurationError("wrong"),
    ModelClosedError("closed"),
    ModelFileError("truncated"),
]


@pytest.mark.parametrize("error", WRONG_CALLS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("wrong", "calibration"), [("small", None), ("large", None), ("small", "online"), ("large", "online")]
)
@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
@pytest.mark.parametrize("call", ["invoke", "stream"])
def test_a_wrong_call_is_raised_and_not_answered_by_the_other_model(
    runner: Any, error: Exception, wrong: str, calibration: Any, kind: Any, call: str
) -> None:
    models = {"small": saying("1", "2"), "large": saying("9"), wrong: saying(Reply("", error=error))}
    reasc = kind(model=models["small"], escalate_to=models["large"], **decided_by(calibration), answer="auto")
    with pytest.raises((SamplingError, type(error))) as caught:
        getattr(runner, call)(reasc, "q")
    raised = caught.value
    assert raised is error if kind is ChatReASC else error in (raised, *getattr(raised, "failures", ()))


class Refusal(Exception):
    """What a provider's client raises of a server's answer."""

    def __init__(self, status: int) -> None:
        super().__init__("sk-secret at http://internal")
        self.status_code = status


@pytest.mark.parametrize(("failed", "calibration"), [("small", None), ("large", None), ("large", "online")])
@pytest.mark.parametrize(
    "error", [Refusal(401), Refusal(429), Refusal(503), ConnectionError("http://internal")], ids=repr
)
def test_a_failed_model_is_logged_once_for_each_reason(
    runner: Any, caplog: pytest.LogCaptureFixture, error: Exception, failed: str, calibration: Any
) -> None:
    forget_warnings()
    replies = {"first": Reply("", error=error), "later": Reply("", error=Refusal(500))}
    flaky = Scripted(script=lambda question, index: replies[question])
    models = {"small": saying("1", "2"), "large": saying("9"), failed: flaky}
    reasc = pair(models["small"], models["large"], calibration=calibration)
    for question in ("first", "first", "later", "first"):
        assert runner.account(reasc, question)["answered_by"] != failed
    logged = [one.getMessage() for one in caplog.records if f"the {failed} model" in one.getMessage()]
    assert len(logged) == 2, logged
    reason = str(getattr(error, "status_code", "unreachable"))
    assert f"({reason})" in logged[0]
    assert "internal" not in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize("calibration", [None, "online"])
@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
@pytest.mark.parametrize(
    ("small", "large", "raised"),
    [
        (ConnectionError("of small"), TimeoutError("of large"), "large"),
        (ModelRateLimitError("of small"), ModelAuthenticationError("of large"), "small"),
        (ModelAuthenticationError("of small"), ModelRateLimitError("of large"), "large"),
        (ContextOverflowError("of small"), ContextOverflowError("of large"), "large"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_the_error_of_two_failed_models_tells_of_both(
    runner: Any, small: Exception, large: Exception, raised: str, kind: Any, calibration: Any
) -> None:
    errors = {"small": small, "large": large}
    for error in errors.values():
        error.__dict__.pop("__notes__", None)
    models = {name: saying(Reply("", error=error)) for name, error in errors.items()}
    reasc = kind(model=models["small"], escalate_to=models["large"], **decided_by(calibration), answer="auto")
    with pytest.raises((SamplingError, type(errors[raised]))) as caught:
        runner.invoke(reasc, "q")
    told = "".join(traceback.format_exception(caught.value))
    assert "of small" in told and "of large" in told
    if kind is ChatReASC:
        assert caught.value is errors[raised], "whose class retries and fallbacks know"
    elif isinstance(caught.value, SamplingError):
        assert "of small" in str(caught.value) and "of large" in str(caught.value)
        assert caught.value.failures[0] is errors[raised]


@pytest.mark.parametrize(("undecided", "expected"), [("answer", None), ("abstain", ""), ("raise", Undecided)])
def test_an_answer_that_the_large_model_does_not_give_is_undecided(runner: Any, undecided: Any, expected: Any) -> None:
    reasc = pair(saying("1", "2"), saying(Reply("I cannot tell.")), on_undecided=undecided)
    if expected is Undecided:
        with pytest.raises(Undecided, match="no vote"):
            runner.invoke(reasc, "q")
        return
    message = runner.invoke(reasc, "q")
    account = message.response_metadata["reasc"]
    assert (account["answered_by"], account["answer"], account["reason"]) == ("large", None, "unanswered")
    assert message.text == ("I cannot tell." if expected is None else "")


@pytest.mark.parametrize(
    ("rule", "small", "by"),
    [
        (Race(1), ["1", "2"], "small"),
        (Race(2), ["1", "1", "2"], "small"),
        (FiniteHorizon(0.97, 8), ["1", "2", "1", "1", "1", "1", "1", "1"], "small"),
        (FiniteHorizon(0.97, 4), ["1", "2", "3", "4"], "large"),
        (ASC(), ["1", "2"], "large"),
    ],
    ids=str,
)
def test_a_rule_of_the_users_own_escalates_what_it_leaves_undecided(
    runner: Any, rule: Any, small: list[str], by: str
) -> None:
    reasc = pair(saying(*small), rule=rule, max_samples=len(small))
    assert runner.account(reasc, "q")["answered_by"] == by


class _Fallback(Scripted):
    """A model that others fall back on."""


FALLBACK = _Fallback(script=lambda question, index: Reply("the answer is 9"))


def configurable() -> Any:
    return saying("8").configurable_fields(script=ConfigurableField("script"))


@pytest.mark.parametrize(
    ("large", "samples"),
    [
        (lambda: saying("9").bind(top_p=0.5), 1),
        (lambda: saying(DOWN, "9").with_retry(stop_after_attempt=1).with_fallbacks([FALLBACK]), 1),
        (lambda: saying("9").with_retry(), 1),
        (lambda: ReASCRunnable(model=saying(DOWN)).with_fallbacks([saying("9")]), 1),
        (lambda: saying("9").with_config(tags=["large"]), 1),
        (lambda: ReASCRunnable(model=saying("8", "9"), rule=ASC()), 7),
        (lambda: ReASCRunnable(model=saying("8", "9"), rule=ASC()).bind(top_p=0.5), 7),
        (lambda: ChatReASC(model=saying("8", "9"), rule=ASC(), answer="auto"), 7),
    ],
    ids=["binding", "fallbacks", "retry", "fallback of votes", "config", "votes", "votes, bound", "votes, chat model"],
)
@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
def test_the_large_model_may_be_wrapped_or_vote(runner: Any, large: Any, samples: int, kind: Any) -> None:
    reasc = kind(model=saying("1", "2"), rule="race", escalate_to=large(), answer="auto")
    message = runner.invoke(reasc, "q")
    account = message.response_metadata["reasc"]
    assert (account["answered_by"], account["answer"], account["reason"]) == ("large", "9", "escalated")
    assert account["models"]["large"]["launched"] == samples and account["launched"] == samples + 2
    assert account["method"] == "race", "which sent it to the large model"
    assert "the answer is 9" in message.text


@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
def test_a_config_bound_to_a_large_model_that_votes_reaches_its_samples(runner: Any, kind: Any) -> None:
    model = saying("8", "9")
    large = kind(model=model, rule=ASC(), answer="auto").with_config(metadata={"who": "inner"}, tags=["large"])
    bound = large.bind(top_p=0.5).with_config(metadata={"who": "outer"})
    runner.invoke(
        ReASCRunnable(model=saying("1", "2"), rule="race", escalate_to=bound), "q", {"metadata": {"of": "both"}}
    )
    for config in model.log.configs:
        assert "large" in config["tags"] and config["metadata"].items() >= {"who": "outer", "of": "both"}.items()
    assert len(model.log.configs) == 7


def test_arguments_bound_to_either_model_reach_it_alone(runner: Any) -> None:
    small, large = saying("1", "2"), saying("9")
    voting = ReASCRunnable(model=large, rule=ASC()).bind(top_p=0.5)
    runner.invoke(pair(small.bind(top_k=3), voting), "q", stop=["END"])
    assert all(one["top_k"] == 3 and "top_p" not in one and one["stop"] == ["END"] for one in small.log.kwargs)
    assert all(one["top_p"] == 0.5 and "top_k" not in one and one["stop"] == ["END"] for one in large.log.kwargs)


def test_a_config_may_choose_the_large_model(runner: Any) -> None:
    chosen = {"configurable": {"script": lambda question, index: Reply("the answer is 7")}}
    reasc = pair(saying("1", "2"), configurable())
    assert runner.account(reasc, "q")["answer"] == "8"
    assert runner.account(reasc, "q", chosen)["answer"] == "7"


def test_a_name_is_made_a_model_once(monkeypatch: pytest.MonkeyPatch, runner: Any) -> None:
    made: list[str] = []

    def named(name: str) -> BaseChatModel:
        made.append(name)
        return saying("9" if name == "large" else "1", "2")

    monkeypatch.setattr("langchain_reasc.runnable.face.model_of", named)
    reasc = ReASCRunnable(model="small", rule="race", escalate_to="large")
    assert runner.account(reasc, "q")["answered_by"] == "large" and made == ["small", "large"]
    assert "escalate_to='large'" in repr(reasc) and reasc.escalate_to == "large"
    reasc.escalate_to = "other"
    assert reasc.escalate_to == "other" and made[-1] == "other"
    assert runner.account(reasc, "q")["answer"] == "1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibration": "mixture"}, "calibration='mixture'"),
        ({"escalate_to": 3}, "escalate_to"),
        ({"max_samples": 2}, "max_samples=2 .*3"),
        ({"calibration": "online", "max_samples": 1}, "max_samples=1 .*3"),
        ({"calibration": "online", "rule": ASC()}, "calibration='online'"),
        ({"model": ReASCRunnable(model=saying("1"))}, "model="),
        ({"escalate_to": pair(saying("1"))}, "escalate_to .*escalate_to"),
    ],
    ids=lambda one: one if isinstance(one, str) else ", ".join(one),
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ReASCRunnable(**{"model": saying("1"), "escalate_to": saying("9"), **options})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": 3}, "escalate_to .*3"),
        ({"within": 0.0}, "within"),
        ({"within": 1.0}, "within"),
        ({"within": 2.0}, "within"),
        ({"prices": -1.0}, "got -1.0"),
        ({"prices": 0.0}, "got 0.0"),
        ({"prices": float("inf")}, "got inf"),
        ({"prices": float("nan")}, "got nan"),
        ({"prices": ((1, 2), (0, 0))}, r"got .*\(0, 0\)"),
        ({"prices": ((1, -2), (3, 4))}, r"got .*-2"),
        ({"prices": (1, 2, 3)}, r"prices .*3"),
        ({"prices": "cheap"}, "prices .*cheap"),
    ],
    ids=lambda one: one if isinstance(one, str) else ", ".join(one),
)
def test_wrong_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Escalation(**{"model": saying("9"), **values})


@pytest.mark.parametrize("name", ["within", "price_ratio", "online_state", "audit", "measure", "ask_confidence"])
@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC, ReASCMiddleware])
def test_of_former_options_it_is_told_what_to_write(name: str, face: Any) -> None:
    instead = {"audit": "Online", "online_state": "Online", "ask_confidence": "stated", "measure": "Measure"}
    model: Any = {} if face is ReASCMiddleware else {"model": saying("1")}
    with pytest.raises(ConfigurationError, match=f"{name}.*{instead.get(name, 'Escalation')}"):
        face(**model, **{name: 0.1})
    if model:
        with pytest.raises(ConfigurationError, match=name):
            setattr(face(**model), name, 0.1)
        with pytest.raises(ConfigurationError, match=name):
            face(**model).model_copy(update={name: 0.1})


def test_one_model_is_not_both(monkeypatch: pytest.MonkeyPatch) -> None:
    model = saying("1")
    monkeypatch.setattr("langchain_reasc.runnable.face.model_of", lambda name: saying(name))
    for same in (model, "some:model"):
        with pytest.raises(ConfigurationError, match="escalate_to is model="):
            ReASCRunnable(model=same, rule="race", escalate_to=same)
    other = ReASCRunnable(model=model.bind(effort="low"), rule="race", escalate_to=model.bind(effort="high"))
    assert other.invoke("q").response_metadata["reasc"]["answered_by"] == "small"


def test_a_total_budget_is_refused(runner: Any) -> None:
    for budget in ({"total_tokens": 100}, {"total_samples": 10}):
        with pytest.raises(ConfigurationError, match="total_tokens and total_samples"):
            runner.batch(pair(saying("1")), ["q"], **budget)


@pytest.mark.parametrize("calibration", [None, "online"])
def test_it_is_copied_and_pickled_with_its_options(runner: Any, calibration: Any) -> None:
    prices = ((0.15, 0.6), (2.5, 10.0))
    reasc = pair(Shy(), Escalation(Shy(says="9"), within=0.1, prices=prices), calibration=calibration)
    for other in (copy.copy(reasc), copy.deepcopy(reasc), reasc.model_copy(), pickle.loads(pickle.dumps(reasc))):
        assert (other.escalate_to.within, other.escalate_to.prices) == (0.1, prices)
        account = runner.account(other, "q")
        assert account["answered_by"] == ("large" if calibration else "small")
    alone = reasc.model_copy(update={"escalate_to": None})
    assert "answered_by" not in runner.account(alone, "q")
    assert runner.account(alone.model_copy(update={"escalate_to": Shy(says="9")}), "q")["answered_by"]
    assert copy.copy(reasc).calibrator is reasc.calibrator


class Shy(Scripted):
    """A model that can be pickled, and has a secret."""

    script: Any = None
    says: str = "1"
    secret: str = "sk-secret"

    def _begin(self, messages: Any) -> Any:
        return Reply(f"the answer is {self.says}"), (str(messages[-1].content), 0)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"says": self.says}


def test_options_are_assigned(runner: Any) -> None:
    reasc = ReASCRunnable(model=saying("1", "2"), max_samples=4)
    assert "answered_by" not in runner.account(reasc, "q")
    reasc.escalate_to = saying("9")
    assert runner.account(reasc, "q")["answer"] == "9"
    reasc.escalate_to = saying("8")
    assert runner.account(reasc, "q")["answer"] == "8"
    before = runner.account(reasc, "q")["models"]["large"]["cost"]
    reasc.escalate_to = Escalation(saying("8"), prices=20.0)
    assert runner.account(reasc, "q")["models"]["large"]["cost"] == 2 * before
    with pytest.raises(ConfigurationError):
        reasc.escalate_to = 2.0
    reasc.calibration = "online"
    learner = reasc.calibrator
    reasc.escalate_to = Escalation(saying("8"), within=0.1)
    assert reasc.calibrator is not learner
    reasc.escalate_to = None
    assert "answered_by" not in runner.account(reasc, "q")


@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
def test_help_lists_the_options_and_nothing_shows_a_secret(kind: Any) -> None:
    assert "escalate_to (default None)" in kind.__doc__
    reasc = kind(model=Shy(), rule="race", escalate_to=Shy(says="9"))
    shown = [repr(reasc), str(reasc)]
    if kind is ChatReASC:
        assert reasc._identifying_params["escalate_to"] == {"says": "9", "_type": "scripted"}
        shown += [str(reasc._identifying_params), reasc._get_llm_string()]
    assert not any("sk-secret" in one for one in shown)


@pytest.mark.parametrize("kind", [ReASCRunnable, ChatReASC])
def test_samples_of_both_are_child_runs(runner: Any, runs: Runs, kind: Any) -> None:
    reasc = kind(model=saying("1", "2"), rule="race", escalate_to=saying("9"), answer="auto")
    message = runner.invoke(reasc, "q", {"callbacks": [runs]})
    models, chains = runs.of("model"), runs.of("chain")
    if kind is ChatReASC:  # one call of a model, which holds the samples
        assert len(models) == 1 and len(chains) == 3
        assert all(run["parent_run_id"] in models for run in chains.values())
    else:
        assert len(models) == 3 and len(chains) == 1
        assert all(run["parent_run_id"] in chains for run in models.values())
    counted = UsageMetadataCallbackHandler()
    runner.invoke(reasc, "q", {"callbacks": [counted]})
    assert sum(one["total_tokens"] for one in counted.usage_metadata.values()) == message.usage_metadata["total_tokens"]


def test_time_is_shared_by_both(runner: Any) -> None:
    slow = saying(Reply("the answer is 9", delay=0.2))
    begun = time.monotonic()
    account = runner.account(pair(saying("1", "2"), slow, timeout=0.3), "q")
    assert time.monotonic() - begun < 5
    assert (account["answered_by"], account["reason"]) == ("small", "contested")
    assert "SampleTimeout" in account["failed_because"]
    late = pair(saying(Reply("the answer is 1", delay=0.2), "2"), timeout=0.3, concurrency=1)
    with pytest.raises(SamplingError):
        runner.invoke(late, "q")
    assert asked(late)[1] == 0


def test_a_sample_that_takes_too_long_fails_alone(runner: Any) -> None:
    endless = saying(Reply("on and", endless=True, delay=0.01), "1")
    account = runner.account(pair(endless, sample_timeout=0.2, concurrency=1), "q")
    assert account["answered_by"] == "small" and account["failed"] == 1
    account = runner.account(
        pair(saying("1", "2"), saying(Reply("on", endless=True, delay=0.01)), sample_timeout=0.2), "q"
    )
    assert account["answered_by"] == "small" and "SampleTimeout" in account["failed_because"]


def by_question(question: str, index: int) -> Reply:
    """What the small model says: "easy" agrees, "hard" differs, "down" fails."""
    if question.startswith("down"):
        return DOWN
    return Reply(f"the answer is {index if question.startswith('hard') else 1}")


def test_a_batch_escalates_each_input_alone(runner: Any) -> None:
    large = failing(lambda question, index: Reply("the answer is 9"), lambda question, index: "2" in question)
    reasc = pair(Scripted(script=by_question), large)
    inputs = ["easy 1", "hard 1", "down 1", "hard 2", "down 2"]
    outcomes = runner.batch(reasc, inputs, {"max_concurrency": 2}, return_exceptions=True)
    accounts = [one.response_metadata["reasc"] for one in outcomes[:4]]
    assert [one["answered_by"] for one in accounts] == ["small", "large", "large", "small"]
    assert isinstance(outcomes[4], SamplingError)
    assert reasc.model.log.most_live <= 2 and large.log.most_live <= 2
    with pytest.raises(SamplingError):
        runner.batch(reasc, inputs)
    assert len(dict(runner.batch_as_completed(reasc, inputs[:3]))) == 3


@pytest.mark.sync_only
def test_ctrl_c_while_the_large_model_answers() -> None:
    large = saying(Reply("", error=KeyboardInterrupt()))  # type: ignore[arg-type]
    reasc = pair(saying("1", "2"), large)
    with pytest.raises(KeyboardInterrupt):
        reasc.invoke("q")


def test_cancellation_while_the_large_model_answers(never: threading.Event) -> None:
    large = saying(Reply("the answer is 9", opens=never))
    reasc = pair(saying("1", "2"), large)
    cancelled(lambda: reasc.ainvoke("q"), lambda: large.log.live == 1)
    assert large.log.live == 0


def by(name: str, text: str, **fields: Any) -> AIMessage:
    return AIMessage(text, response_metadata={"reasc": {"answered_by": name}}, **fields)


def test_each_model_reads_what_the_other_wrote_as_plain_text_and_calls(runner: Any) -> None:
    thought: Any = [{"type": "thinking", "thinking": "hm", "signature": "S"}, {"type": "text", "text": "look"}]
    call: Any = [{"name": "look", "args": {"at": 1}, "id": "c1"}]
    history = [
        HumanMessage("q"),
        AIMessage(content=thought, id="m1", tool_calls=call, response_metadata={"reasc": {"answered_by": "large"}}),
        by("small", "I see", id="m2", additional_kwargs={"reasoning": "R"}),
        AIMessage("of neither", id="m3"),
        HumanMessage("passed on", response_metadata={"reasc": {"answered_by": "large"}}),
    ]
    reasc = pair(saying("1", "2"))
    runner.invoke(reasc, history)
    _, of_large, of_small, of_neither, passed_on = reasc.model.log.prompts[0]
    assert passed_on == history[4]
    assert (of_large.content, of_large.tool_calls[0]["id"], of_large.id) == ("look", "c1", None)
    assert of_small == history[2] and of_neither == history[3]
    _, of_large, of_small, of_neither, _ = reasc.escalate_to.log.prompts[0]
    assert of_large == history[1] and of_neither == history[3]
    assert (of_small.content, of_small.id, of_small.additional_kwargs) == ("I see", None, {})


def test_listeners_hear_of_the_responses_of_both(runner: Any) -> None:
    heard: list[Any] = []
    runner.solve(pair(saying("1", "2")), "q", on_response=lambda response, decision: heard.append(response.answer))
    assert heard == ["1", "2", "9"]


def scoring(*said: tuple[str, float]) -> Scripted:
    """A model whose sample i says an answer with a score; the last one for all beyond."""
    replies = [Reply(f"the answer is {answer}", -score) for answer, score in said]
    return Scripted(script=lambda question, index: replies[min(index, len(replies) - 1)])


@pytest.mark.parametrize(
    ("said", "options", "by", "reason"),
    [
        ([("1", 3.0)], {}, "small", "gate"),
        ([("1", 0.5), ("2", 0.5), ("3", 0.5), ("4", 0.5)], {"max_samples": 4}, "large", "escalated"),
        ([("1", 0.5), ("2", 0.5), ("1", 0.5), ("1", 0.5)], {"max_samples": 4}, "large", "escalated"),
        ([("1", 3.0)], {"abstain_below": 0.9}, "large", "escalated"),
        ([("1", 3.0)], {"abstain_below": 0.2}, "small", "gate"),
    ],
)
def test_a_calibration_of_the_small_model_alone_says_what_is_escalated(
    runner: Any, said: Any, options: Any, by: str, reason: str
) -> None:
    told = SupportCurve(
        points=((0.5, 0.3), (5 / 6, 0.8)), low=(0.2, 0.7), high=(0.4, 0.9), n=64, right=0.6, rule="reasc"
    )
    made = calibration(gate=2.0, p_correct=told).as_in_paper()
    account = runner.account(pair(scoring(*said), calibration=made, **options), "q")
    assert (account["answered_by"], account["reason"]) == (by, reason)


def test_a_rule_by_the_confidence_of_the_first_response(runner: Any) -> None:
    for score, by in ((2.0, "small"), (0.5, "large")):
        reasc = pair(scoring(("1", score)), rule=FirstConfident(1.0), confidence=TOP_K)
        assert runner.account(reasc, "q")["answered_by"] == by
        assert asked(reasc) == (1, by == "large")


def test_confidence_is_asked_of_the_small_model_alone(runner: Any) -> None:
    reasc: Any = pair(saying("1", "2"), confidence="stated")
    runner.invoke(reasc, "q")
    small, large = str(reasc.model.log.prompts[0]), str(reasc.escalate_to.log.prompts[0])
    assert "Confidence" in small and "Confidence" not in large


@pytest.mark.parametrize("learns", [False, True])
def test_what_a_judge_costs_is_told_beside_the_bill(runner: Any, learns: bool) -> None:
    """Answers of both models are compared by meaning; the judge is no part of either's bill."""
    judge = metered()
    small = saying(Reply("Paris it is"), Reply("It is Lyon I think"))
    large = saying(Reply("Surely Rome"), Reply("Surely Rome"))
    online: Any = {"calibration": "online"} if learns else {}
    result = runner.solve(pair(small, large, answer=free_text(judge=judge), **online), "q")
    account = result.message.response_metadata["reasc"]
    assert account["answered_by"] == "large" and len(judge.log.calls) > 0
    assert account["tokens"]["judge"] == {"input": 100 * len(judge.log.calls), "output": len(judge.log.calls)}
    assert result.usage.bill["total_tokens"] == billed(small, large)


def test_a_slow_extractor_runs_beside_the_event_loop(runner: Any) -> None:
    threads: list[threading.Thread] = []

    def found(text: str) -> str:
        threads.append(threading.current_thread())
        return text.split()[-1]

    for online in ({}, {"calibration": "online"}):
        runner.invoke(pair(saying("1", "1", "2"), answer=found, **online), "q")
    assert runner.is_async != (threading.main_thread() in threads)
