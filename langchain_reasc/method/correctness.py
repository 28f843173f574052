"""How strongly a decision is supported: the one number from which P(correct) is read."""

from langchain_reasc.method.decision import Decision

__all__ = ["support"]


def support(decision: Decision) -> float | None:
    """The winner's share of the evidence, shrunk by how much there is: ``(v + 1) / (Σv + 2)``.

    It is the mean of the Beta posterior of that share under a uniform prior (Laplace's rule of succession), so that
    four votes of four (.83) say less than sixteen of sixteen (.94). Unlike the posterior of the Beta rules, which every
    decision but an undecided one has just above the same threshold, it goes on telling a clear vote from a close one.

    Evidence below zero, of a rule by which a response may speak against its answer, is none.

    Args:
        decision: of any rule. Of a decision in parts, the support of the least supported part.

    Returns:
        None where there was no vote: no response has an answer, or the first is taken as it is.
    """
    if decision.answer is None or decision.reason == "alone":
        return None
    if decision.parts:
        return min((share for part in decision.parts.values() if (share := support(part)) is not None), default=None)
    evidence = {answer: max(0.0, weight) for answer, weight in decision.evidence.items()}
    return (evidence.get(decision.answer, 0.0) + 1.0) / (sum(evidence.values()) + 2.0)
