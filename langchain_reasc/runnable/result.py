"""The result of a question: decision, responses, usage, and a summary in words."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Final

from langchain_core.messages import AIMessage

from langchain_reasc.complaints import shortened
from langchain_reasc.method.stopping import Decision
from langchain_reasc.models.usage import Usage
from langchain_reasc.runnable.decision_plan import ProbabilityName
from langchain_reasc.runnable.message_metadata import Account, to_account
from langchain_reasc.sampling import SampledResponse

PROBABILITIES: Final[Mapping[ProbabilityName, str]] = {
    "p_correct": "is right",
    "p_agree": "agrees with one more response",
}
"""What each probability is of; agreement is not correctness."""
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


@dataclass(frozen=True)
class ReASCResult:
    """The outcome for one input.

    Attributes:
        winner: the winning response, without an account.
        decision: the answer, the evidence, and why sampling stopped.
        responses: every sample launched, in launch order.
        usage: what was spent.
        account: what else the account of the decision tells.
        notices: what the caller should know, such as that votes were counted for want
            of a calibration.
        doubt: why the answer is not trusted, where ``p_correct`` or ``p_agree`` is
            below ``abstain_below``.
        unsupported: whether the answer has no more than ``min_share`` of the votes.
        hopeless: what never agrees, and how to leave that out of the vote; None unless
            that is why sampling stopped.
    """

    winner: AIMessage
    decision: Decision
    responses: tuple[SampledResponse, ...]
    usage: Usage
    account: Account
    notices: tuple[str, ...] = ()
    doubt: str | None = None
    unsupported: bool = False
    hopeless: str | None = None

    @cached_property
    def message(self) -> AIMessage:
        """The winning response, with ``response_metadata["reasc"]``; its
        ``usage_metadata`` is the whole bill. An empty message if ReASC abstains.
        """
        account = to_account(self.account, self.decision, self.usage, self.notices)
        metadata = {**self.winner.response_metadata, "reasc": account}
        if self.account.abstained:
            return AIMessage(
                "",
                id=self.winner.id,
                response_metadata=metadata,
                usage_metadata=self.usage.bill,
            )
        return self.winner.model_copy(
            update={"response_metadata": metadata, "usage_metadata": self.usage.bill}
        )

    def __repr__(self) -> str:
        """Return one line; ``print`` shows some ten."""
        return (
            f"ReASCResult(answer={shortened(self.answer)!r}, "
            f"samples={self.decision.samples}, reason={self.decision.reason!r}, "
            f"output_tokens={self.usage.output_tokens})"
        )

    def __str__(self) -> str:
        """Return some ten lines; the attributes have everything."""
        ranked = votes(self)
        lines = [
            "ReASCResult",
            f"answer {shortened(self.answer)}",
            shortened(self.summary(), 500),
        ]
        if ranked:
            lines.append("responses  evidence  answer")
        for answer, count, evidence in ranked[:_SHOWN]:
            lines.append(f"{count:9}  {evidence:8.2f}  {shortened(answer)}")
        lines += _below_votes(self)
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        """Return the same for a notebook, with the votes as a small table; everything
        is escaped.
        """
        left = "style='text-align: left'"
        rows = []
        for answer, count, evidence in votes(self)[:_SHOWN]:
            cells = f"<td>{count}</td><td>{evidence:.2f}</td>"
            text = escape(shortened(answer))
            rows.append(f"<tr>{cells}<td {left}>{text}</td></tr>")
        table = "<br>"
        if rows:
            header = (
                f"<tr><th>responses</th><th>evidence</th><th {left}>answer</th></tr>"
            )
            table = f"<table>{header}{''.join(rows)}</table>"
        answer = escape(shortened(self.answer))
        summary = escape(shortened(self.summary(), 500))
        below = "<br>".join(escape(line) for line in _below_votes(self))
        return f"<b>{answer}</b><br>{summary}{table}<small>{below}</small>"

    def summary(self) -> str:
        """Say in one sentence whether the answer is decided, how many responses gave
        it, and what a calibration knows.

        The posterior of the votes is not in it: it is far higher than the probability
        that the answer is right.
        """
        ending = _ending(self)
        if self.doubt is not None:
            return f"doubted: {self.doubt}; {ending}"
        parts = [ending]
        for name, meaning in PROBABILITIES.items():
            value = self.account.probabilities.get(name)
            if value is not None:
                parts.append(f"the answer {meaning} with a probability of {value:.2f}")
        return "; ".join(parts)

    @property
    def answer(self) -> str | None:
        """The winning answer; None if no response has one."""
        return self.decision.answer

    @property
    def p_correct(self) -> float | None:
        """How likely the answer is right; None without a calibration on labels that
        tells it.
        """
        return self.account.probabilities.get("p_correct")

    @property
    def p_correct_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of ``p_correct``; None without it."""
        return self.account.interval

    @property
    def p_agree(self) -> float | None:
        """How likely one further response agrees with the answer, which does not make
        it right.

        None without a calibration that tells it.
        """
        return self.account.probabilities.get("p_agree")

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
            value = self.account.probabilities.get(name)
            if value is None:
                continue
            if value < probability:
                return (
                    f"the answer {meaning} with a probability of {value:.3g}, below "
                    f"{probability:g}"
                )
            break  # what is known of being right outweighs agreement
        return _agreement(self) if self.unsupported else None

    def abstained(self) -> "ReASCResult":
        """Return the same with an empty message in place of the winning one, with its
        account and its bill.
        """
        account = replace(self.account, abstained=True, doubt=self.doubt)
        return replace(self, account=account)

    @property
    def failures(self) -> tuple[Exception, ...]:
        """What the failed samples raised, in launch order."""
        return tuple(
            response.error for response in self.responses if response.error is not None
        )


def votes(result: ReASCResult) -> list[tuple[str, int, float]]:
    """Return each answer, how many responses gave it, and the evidence for it; the
    strongest first.
    """
    counts = _count_answers(result)
    evidence = result.decision.evidence
    ranked = sorted(evidence, key=evidence.__getitem__, reverse=True)
    return [(answer, counts[answer], evidence[answer]) for answer in ranked]


def cost(result: ReASCResult) -> str:
    """Say how many samples there were, and how many tokens they generated; of each
    model, if there are two.
    """
    about = "about " if result.usage.estimated else ""
    if result.account.models:
        return "; ".join(
            f"{name} model: {_number(model.launched, 'sample')}, "
            f"{about}{model.output:,} tokens"
            for name, model in result.account.models.items()
        )
    samples = _number(result.decision.samples, "sample")
    launched = len(result.responses)
    if launched > result.decision.samples:
        samples += f" ({launched} launched)"
    return f"{samples}, {about}{result.usage.output_tokens:,} tokens"


def _below_votes(result: ReASCResult) -> list[str]:
    """Return what is said below the votes: how many more there are, the cost, notices."""
    lines = []
    more = len(result.decision.evidence) - _SHOWN
    if more > 0:
        lines.append(f"and {_number(more, 'other answer')}")
    lines.append(cost(result))
    for notice in result.notices[:_SHOWN]:
        lines.append(f"note: {shortened(notice, 200)}")
    return lines


def _ending(result: ReASCResult) -> str:
    decision = result.decision
    if decision.reason == "alone":
        return "taken as it is: the first response needs no vote"
    if decision.answer is None:
        responses = _number(decision.samples, "response")
        return f"no vote: none of {responses} has an answer that can be compared"
    if decision.reason == "gate":
        ending = "accepted by the gate: the first response was confident enough"
        if result.account.guarantee:
            ending += f"; {result.account.guarantee}"
        return ending
    if decision.reason == "escalated":
        return "answered by the larger model" + _why_escalated(result)
    if decision.reason == "hopeless":
        return f"undecided: {result.hopeless}"
    ending = _ENDINGS[decision.reason or "budget"]
    decided = "decided"
    if _is_outvoted(decision):
        decided = "likeliest by its scores, though another has more votes"
    elif result.unsupported:
        decided = "most common"
    return ending.format(decided=decided, gave=_agreement(result))


def _is_outvoted(decision: Decision) -> bool:
    """Return whether another answer has more evidence."""
    if decision.parts or decision.answer not in decision.evidence:
        return False
    return decision.evidence[decision.answer] < max(decision.evidence.values())


def _why_escalated(result: ReASCResult) -> str:
    """Say what the small model answered, where it was asked first."""
    small = result.account.models.get("small")
    if small is None:
        return ""
    if small.reason == "failed":
        return ", as the smaller one failed"
    if result.account.is_shadowed:
        return "; the smaller one was asked, too, to learn from both"
    answers = ", ".join(
        f"{shortened(answer)}: {weight:g}" for answer, weight in small.evidence.items()
    )
    return f", as the smaller one is undecided ({answers or 'no answer'})"


def _agreement(result: ReASCResult) -> str:
    """Say how many responses gave the answer, and what they count for by their
    confidence.
    """
    decision = result.decision
    count = _count_answers(result)[decision.answer]
    responses = _number(decision.samples, "response")
    if not count:
        text = f"it was put together from {responses}"
        if result.unsupported:
            text += ", in which not all of its parts have enough votes"
        return text
    text = f"{count} of {responses} gave it"
    if result.unsupported:
        text = f"only {text}"
    evidence = decision.evidence.get(decision.answer or "", 0.0)
    if evidence - count >= 0.05:
        text += f", counted as {evidence:.1f} for confidence"
    return text


def _count_answers(result: ReASCResult) -> Counter[str | None]:
    return Counter(
        response.answer
        for response in result.responses
        if response.used and response.answer is not None
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
