"""A result in words: one sentence, some ten lines of text, a small table in a notebook."""

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from langchain_reasc.runnable.result import ReASCResult

__all__ = ["PROBABILITIES", "as_html", "as_text", "cost", "sentence", "shortened", "votes"]

PROBABILITIES: Final = {"p_correct": "is right", "p_agree": "agrees with further responses"}
"""What each probability is of; agreement is not correctness."""
HOPELESS: Final = "agreement is hopeless"
"""What the notice of it begins with."""
_ENDINGS: Final = {
    "evidence": "decided: {gave}, enough for it to stay in front (P = {posterior:.3f})",
    "agreement": "decided: {gave}, and further ones would hardly change that (P = {posterior:.3f})",
    "window": "decided: {gave}, and so did all of the last window",
    "timeout": "undecided: the time is over, and {gave}",
    "budget": "undecided: the budget is spent, and {gave}",
}
_SHOWN: Final = 5  # answers, and notices


def sentence(result: "ReASCResult") -> str:
    """Say whether the answer is decided, how many responses gave it, and how sure that is."""
    ending = _ending(result)
    if result.doubt is not None:
        return f"doubted: {result.doubt}; {ending}"
    likely = [
        f"the answer {meaning} with a probability of {value:.2f}"
        for name, meaning in PROBABILITIES.items()
        if (value := getattr(result, name)) is not None
    ]
    return "; ".join([ending, *likely])


def _ending(result: "ReASCResult") -> str:
    decision = result.decision
    if decision.reason == "alone":
        return "taken as it is: the first response needs no vote"
    if decision.answer is None:
        return f"no answer: none of {_number(decision.samples, 'response')} names one"
    if decision.reason == "gate":
        promise = result.message.response_metadata["reasc"].get("guarantee")
        return "accepted by the gate: the first response was confident enough" + (f"; {promise}" if promise else "")
    if decision.reason == "hopeless":
        return "undecided: " + next(one for one in result.notices if one.startswith(HOPELESS))
    return _ENDINGS[decision.reason or "budget"].format(gave=_agreement(result), posterior=decision.posterior)


def _agreement(result: "ReASCResult") -> str:
    """Say how many responses gave the answer, and what they count for by their confidence."""
    decision = result.decision
    gave, evidence = _counts(result)[decision.answer], decision.evidence.get(decision.answer or "", 0.0)
    if not gave:
        return f"it was put together from {_number(decision.samples, 'response')}"
    only = "only " if 2 * gave <= decision.samples and result.undecided else ""
    weighed = f", counted as {evidence:.1f} for confidence" if evidence - gave >= 0.05 else ""
    return f"{only}{gave} of {_number(decision.samples, 'response')} gave it{weighed}"


def votes(result: "ReASCResult") -> list[tuple[str, int, float]]:
    """Return each answer, how many responses gave it, and the evidence for it; the strongest first."""
    counts = _counts(result)
    ranked = sorted(result.decision.evidence.items(), key=lambda one: -one[1])
    return [(answer, counts[answer], evidence) for answer, evidence in ranked]


def _counts(result: "ReASCResult") -> Counter[str | None]:
    return Counter(response.answer for response in result.responses if response.used and response.answer is not None)


def cost(result: "ReASCResult") -> str:
    """Say how many samples there were, and how many tokens they generated."""
    samples, launched, usage = result.decision.samples, len(result.responses), result.usage
    beside = f" ({launched} launched)" if launched > samples else ""
    return f"{_number(samples, 'sample')}{beside}, {'about ' * usage.estimated}{usage.output_tokens:,} tokens"


def as_text(result: "ReASCResult") -> str:
    """Return the answer, whether it is decided, the votes, what was spent, and notices, as text."""
    ranked, more = _ranked(result)
    lines = [f"answer {shortened(result.answer)}", shortened(sentence(result), 500)]
    if ranked:
        lines.append("responses  evidence  answer")
    lines += [f"{count:9}  {evidence:8.2f}  {answer}" for answer, count, evidence in ranked]
    return "\n  ".join(["ReASCResult", *lines, *more, cost(result), *_notes(result)])


def as_html(result: "ReASCResult") -> str:
    """Return the same as a small table, everything escaped."""
    ranked, more = _ranked(result)
    left = "style='text-align: left'"
    rows = [
        f"<tr><td>{count}</td><td>{evidence:.2f}</td><td {left}>{escape(answer)}</td></tr>"
        for answer, count, evidence in ranked
    ]
    header = f"<tr><th>responses</th><th>evidence</th><th {left}>answer</th></tr>"
    table = f"<table>{header}{''.join(rows)}</table>" if rows else "<br>"
    below = map(escape, [*more, cost(result), *_notes(result)])
    text = escape(shortened(sentence(result), 500))
    return f"<b>{escape(shortened(result.answer))}</b><br>{text}{table}<small>{'<br>'.join(below)}</small>"


def _ranked(result: "ReASCResult") -> tuple[list[tuple[str, int, float]], list[str]]:
    """Return the strongest answers, shortened, and how many more there are."""
    ranked = votes(result)
    more = len(ranked) - _SHOWN
    others = [f"and {_number(more, 'other answer')}"] if more > 0 else []
    return [(shortened(answer), count, evidence) for answer, count, evidence in ranked[:_SHOWN]], others


def _notes(result: "ReASCResult") -> list[str]:
    return [f"note: {shortened(notice, 200)}" for notice in result.notices[:_SHOWN]]


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def shortened(text: object, length: int = 60) -> str:
    """Shorten a text to one line of about this length, without control characters."""
    whole = str(text)
    line = repr(" ".join(whole[: 2 * length].split()))[1:-1]
    if len(whole) <= 2 * length and len(line) <= length:
        return line
    return f"{line[:length]}... ({len(whole):,} characters)"
