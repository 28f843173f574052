"""The result of a question: decision, responses, usage, and a summary in words."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final, Literal, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata, add_usage

from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.usage import (
    estimated_tokens,
    estimated_usage,
    is_estimated,
    output_tokens,
    reported_usage,
)
from langchain_reasc.sampling import Sample

PROBABILITIES: Final = {
    "p_correct": "is right",
    "p_agree": "agrees with further responses",
}
"""What each probability is of; agreement is not correctness."""
NEVER_AGREES: Final = "agreement is hopeless"
"""What the notice of it begins with."""
_ENDINGS: Final = {
    "evidence": "{decided}: {gave}, enough for it to stay ahead of the other answers",
    "agreement": "{decided}: {gave}, and further ones would hardly change that",
    "window": "{decided}: {gave}, and so did all of the last window",
    "unanimous": "{decided}: {gave}, and no response another",
    "contested": "undecided: the responses differ, and {gave}",
    "plurality": "{decided}: {gave}, and too few samples are left to change that",
    "timeout": "undecided: the time is over, and {gave}",
    "budget": "undecided: the budget is spent, and {gave}",
}
_SHOWN: Final = 5  # answers, and notices


@dataclass(frozen=True, slots=True)
class SampledResponse:
    """One sample as the decision saw it.

    Attributes:
        index: its place in launch order.
        message: what the model said, with its token signals; None when it failed before
            the first token.
        status: ``complete``, ``cancelled`` (cut off once the decision had fallen) or
            ``failed``.
        used: whether the decision rests on it; others were launched beside it and paid
            for all the same.
        answer: the normalized answer, or None.
        score: S(y), or None where no confidence was read.
        weight: the evidence it contributed; 0 when it was not used or has no answer.
        output_tokens: how many tokens were generated.
        error: what a failed sample raised.
        asked: which model wrote it, if there is a larger one.
    """

    index: int
    message: AIMessage | None
    status: Literal["complete", "cancelled", "failed"]
    used: bool
    answer: str | None
    score: float | None
    weight: float
    output_tokens: int
    error: Exception | None = None
    asked: Literal["small", "large"] | None = None

    def __repr__(self) -> str:
        """Return one line, without the token signals of the message, which are
        thousands of numbers.
        """
        said = self.error if self.message is None else self.message.text
        score = "None" if self.score is None else f"{self.score:.4g}"
        return (
            f"SampledResponse(index={self.index}, status={self.status!r}, "
            f"used={self.used}, answer='{shortened(self.answer)}', score={score}, "
            f"weight={self.weight:.4g}, output_tokens={self.output_tokens}, "
            f"text='{shortened(said)}')"
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens paid for one question, over all its samples.

    Attributes:
        bill: the sum as LangChain has it: prompt tokens as often as the model was given
            the prompt, generated tokens of unused and cancelled samples too, and of
            both the details that providers report (cached, reasoning, audio).
        unused_output_tokens: generated tokens of samples that the decision does not
            rest on.
        estimated: whether some sample, or the judge, came without usage and its tokens
            were counted from what arrived.
        judge: the tokens of a judge that compares answers; not part of the bill, since
            it is another model. None where no judge is asked.
    """

    bill: UsageMetadata
    unused_output_tokens: int = 0
    estimated: bool = False
    judge: UsageMetadata | None = None

    @classmethod
    def add_up(
        cls,
        samples: Sequence[Sample],
        used: Collection[int],
        *,
        lost: Sequence[Sample] = (),
        judged: Sequence[tuple[str, AIMessage]] | None = None,
        prompt_tokens: Callable[[], int] = lambda: 0,
    ) -> "Usage":
        """Add up what a question cost.

        That is its samples, of which the decision rests on those ``used``, and others
        that were ``lost``. ``judged`` has the prompts of a judge, and its replies; None
        where there is none. ``prompt_tokens`` estimates those of the prompt, where no
        sample reports them.
        """
        used_by_none = [one for one in samples if one.index not in used] + [*lost]
        drawn = [one.message for one in [*samples, *lost] if one.message is not None]
        reported = [(message, reported_usage(message)) for message in drawn]
        # All samples had the same prompt, so one that came without usage cost what the
        # others did.
        prompt = max(
            (usage["input_tokens"] for _, usage in reported if usage), default=0
        )
        if not prompt and any(usage is None for _, usage in reported):
            prompt = prompt_tokens()
        judge, replies = None, [reply for _, reply in judged or ()]
        if judged is not None:
            judge = _bill(
                [
                    (reply, estimated_tokens(asked.encode(errors="replace")))
                    for asked, reply in judged
                ]
            )
        return cls(
            _bill([(message, prompt) for message in drawn]),
            sum(output_tokens(one.message) for one in used_by_none),
            estimated=any(map(is_estimated, [*drawn, *replies])),
            judge=judge,
        )

    @property
    def input_tokens(self) -> int:
        """Prompt tokens."""
        return self.bill["input_tokens"]

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed again (a shared prefill)."""
        return self.bill.get("input_token_details", {}).get("cache_read", 0)

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return self.bill["output_tokens"]

    @property
    def account(self) -> dict[str, Any]:
        """What the account of a decision says of it."""
        account: dict[str, Any] = {
            "input": self.bill["input_tokens"],
            "output": self.bill["output_tokens"],
            "unused_output": self.unused_output_tokens,
            "estimated": self.estimated,
        }
        if self.judge is not None:
            account["judge"] = {
                "input": self.judge["input_tokens"],
                "output": self.judge["output_tokens"],
            }
        return account


class Likelihood(TypedDict):
    """How likely an answer is right, or agrees with further responses; and what that
    was learned from.
    """

    value: float
    source: Literal["labels", "consensus"]


@dataclass(frozen=True, slots=True)
class ReASCResult:
    """The outcome for one input.

    Attributes:
        message: the winning response, with ``response_metadata["reasc"]``; its
            ``usage_metadata`` is the whole bill.
        decision: the answer, the evidence, and why sampling stopped.
        responses: every sample launched, in launch order.
        usage: what was spent.
        notices: what the caller should know, such as that votes were counted for want
            of a calibration.
        doubt: why the answer is not trusted, where ``p_correct`` or ``p_agree`` is
            below ``abstain_below``.
        unsupported: whether the answer has no more than ``min_share`` of the votes.
    """

    message: AIMessage
    decision: Decision
    responses: tuple[SampledResponse, ...]
    usage: Usage
    notices: tuple[str, ...] = ()
    doubt: str | None = None
    unsupported: bool = False

    def __repr__(self) -> str:
        """Return one line; ``print`` shows some ten."""
        return (
            f"ReASCResult(answer={shortened(self.answer)!r}, "
            f"samples={self.decision.samples}, reason={self.decision.reason!r}, "
            f"output_tokens={self.usage.output_tokens})"
        )

    def __str__(self) -> str:
        """Return some ten lines; the attributes have everything."""
        ranked, more = _ranked(self)
        lines = [
            "ReASCResult",
            f"answer {shortened(self.answer)}",
            shortened(self.summary(), 500),
        ]
        lines += ["responses  evidence  answer"] if ranked else []
        lines += [
            f"{count:9}  {evidence:8.2f}  {answer}"
            for answer, count, evidence in ranked
        ]
        return "\n  ".join([*lines, *more])

    def _repr_html_(self) -> str:
        """Return the same for a notebook, with the votes as a small table; everything
        is escaped.
        """
        ranked, more = _ranked(self)
        left = "style='text-align: left'"
        rows = [
            (
                f"<tr><td>{count}</td><td>{evidence:.2f}</td><td "
                f"{left}>{escape(answer)}</td></tr>"
            )
            for answer, count, evidence in ranked
        ]
        header = f"<tr><th>responses</th><th>evidence</th><th {left}>answer</th></tr>"
        table = f"<table>{header}{''.join(rows)}</table>" if rows else "<br>"
        text, below = (
            escape(shortened(self.summary(), 500)),
            "<br>".join(map(escape, more)),
        )
        return f"<b>{escape(shortened(self.answer))}</b><br>{text}{table}<small>{below}</small>"

    def summary(self) -> str:
        """Say in one sentence whether the answer is decided, how many responses gave
        it, and what a calibration knows.

        The posterior of the votes is not in it: it is far higher than the probability
        that the answer is right.
        """
        ending = _ending(self)
        if self.doubt is not None:
            return f"doubted: {self.doubt}; {ending}"
        likely = [
            f"the answer {meaning} with a probability of {value:.2f}"
            for name, meaning in PROBABILITIES.items()
            if (value := self._probability(name)) is not None
        ]
        return "; ".join([ending, *likely])

    @property
    def answer(self) -> str | None:
        """The winning answer; None if no response has one."""
        return self.decision.answer

    @property
    def p_correct(self) -> float | None:
        """How likely the answer is right; None without a calibration on labels that
        tells it.
        """
        return self._probability("p_correct")

    @property
    def p_agree(self) -> float | None:
        """How likely further responses agree with the answer, which does not make it
        right.

        None without a calibration without labels that tells it.
        """
        return self._probability("p_agree")

    def _probability(self, name: str) -> float | None:
        likelihood: Likelihood | None = self.message.response_metadata["reasc"].get(
            name
        )
        return likelihood["value"] if likelihood else None

    @property
    def undecided(self) -> bool:
        """Whether sampling stopped without sufficient evidence, or the answer is
        unsupported or doubted.
        """
        return self.decision.undecided or self.unsupported or self.doubt is not None

    def doubt_below(self, probability: float) -> str | None:
        """Say why the answer is not to be trusted, where its probability is below this;
        None otherwise.
        """
        if self.decision.reason == "alone":  # what was not voted on is not doubted
            return None
        if self.answer is None:
            return "no response gave an answer"
        for name, meaning in PROBABILITIES.items():
            if (value := self._probability(name)) is not None:
                if value < probability:
                    return f"the answer {meaning} with a probability of {value:.3g}, below {probability:g}"
                break  # what is known of being right outweighs agreement
        return _agreement(self) if self.unsupported else None

    def abstained(self) -> "ReASCResult":
        """Return the same with an empty message in place of the winning one, with its
        account and its bill.
        """
        message = self.message
        account = {**message.response_metadata["reasc"], "abstained": True}
        if self.doubt is not None:
            account["abstained_because"] = self.doubt
        metadata = {**message.response_metadata, "reasc": account}
        empty = AIMessage(
            "",
            id=message.id,
            response_metadata=metadata,
            usage_metadata=message.usage_metadata,
        )
        return replace(self, message=empty)

    @property
    def failures(self) -> tuple[Exception, ...]:
        """What the failed samples raised, in launch order."""
        return tuple(
            response.error for response in self.responses if response.error is not None
        )


def _bill(messages: Sequence[tuple[AIMessage, int]]) -> UsageMetadata:
    """Add up the usage of messages, each with its prompt tokens where it came without
    usage.
    """
    bill = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
    for message, prompt in messages:
        bill = add_usage(
            bill,
            reported_usage(message) or estimated_usage(message, prompt_tokens=prompt),
        )
    return bill


def _ending(result: ReASCResult) -> str:
    decision = result.decision
    if decision.reason == "alone":
        return "taken as it is: the first response needs no vote"
    if decision.answer is None:
        return f"no vote: none of {_number(decision.samples, 'response')} has an answer that can be compared"
    if decision.reason == "gate":
        promise = result.message.response_metadata["reasc"].get("guarantee")
        return "accepted by the gate: the first response was confident enough" + (
            f"; {promise}" if promise else ""
        )
    if decision.reason == "escalated":
        return "answered by the larger model" + _why_escalated(result)
    if decision.reason == "hopeless":
        return "undecided: " + next(
            one for one in result.notices if one.startswith(NEVER_AGREES)
        )
    decided = "most common" if result.unsupported else "decided"
    return _ENDINGS[decision.reason or "budget"].format(
        decided=decided, gave=_agreement(result)
    )


def _why_escalated(result: ReASCResult) -> str:
    """Say what the small model answered, where it was asked first."""
    small = result.message.response_metadata["reasc"]["models"].get("small")
    if small is None:
        return ""
    if small["reason"] == "failed":
        return ", as the smaller one failed"
    if result.message.response_metadata["reasc"].get("shadowed"):
        return "; the smaller one was asked, too, to learn from both"
    gave = ", ".join(
        f"{shortened(answer)}: {votes:g}" for answer, votes in small["evidence"].items()
    )
    return f", as the smaller one is undecided ({gave or 'no answer'})"


def _agreement(result: ReASCResult) -> str:
    """Say how many responses gave the answer, and what they count for by their
    confidence.
    """
    decision = result.decision
    gave, evidence = (
        _count_answers(result)[decision.answer],
        decision.evidence.get(decision.answer or "", 0.0),
    )
    if not gave:
        parts = (
            ", in which not all of its parts have enough votes"
            if result.unsupported
            else ""
        )
        return (
            f"it was put together from {_number(decision.samples, 'response')}{parts}"
        )
    only = "only " if result.unsupported else ""
    weighed = (
        f", counted as {evidence:.1f} for confidence" if evidence - gave >= 0.05 else ""
    )
    return f"{only}{gave} of {_number(decision.samples, 'response')} gave it{weighed}"


def votes(result: ReASCResult) -> list[tuple[str, int, float]]:
    """Return each answer, how many responses gave it, and the evidence for it; the
    strongest first.
    """
    counts = _count_answers(result)
    ranked = sorted(result.decision.evidence.items(), key=lambda one: -one[1])
    return [(answer, counts[answer], evidence) for answer, evidence in ranked]


def _count_answers(result: ReASCResult) -> Counter[str | None]:
    return Counter(
        response.answer
        for response in result.responses
        if response.used and response.answer is not None
    )


def cost(result: ReASCResult) -> str:
    """Say how many samples there were, and how many tokens they generated; of each
    model, if there are two.
    """
    samples, launched, usage = (
        result.decision.samples,
        len(result.responses),
        result.usage,
    )
    if models := result.message.response_metadata["reasc"].get("models"):
        about = "about " * usage.estimated
        return "; ".join(
            (
                f"{name} model: {_number(one['launched'], 'sample')}, "
                f"{about}{one['output']:,} tokens"
            )
            for name, one in models.items()
        )
    beside = f" ({launched} launched)" if launched > samples else ""
    return f"{_number(samples, 'sample')}{beside}, {'about ' * usage.estimated}{usage.output_tokens:,} tokens"


def _ranked(result: ReASCResult) -> tuple[list[tuple[str, int, float]], list[str]]:
    """Return the strongest answers, shortened, and what is said below them: how many
    more, the cost, notices.
    """
    ranked = votes(result)
    more = len(ranked) - _SHOWN
    others = [f"and {_number(more, 'other answer')}"] if more > 0 else []
    notes = [f"note: {shortened(notice, 200)}" for notice in result.notices[:_SHOWN]]
    shown = [
        (shortened(answer), count, evidence)
        for answer, count, evidence in ranked[:_SHOWN]
    ]
    return shown, [*others, cost(result), *notes]


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def shortened(text: object, length: int = 60) -> str:
    """Shorten a text to one line of about this length, without control characters."""
    whole = str(text)
    line = repr(" ".join(whole[: 2 * length].split()))[1:-1]
    if len(whole) <= 2 * length and len(line) <= length:
        return line
    return f"{line[:length]}... ({len(whole):,} characters)"
