"""What a rule that was learned without labels promises, in words."""

from collections.abc import Sequence

from langchain_reasc.calibration.observed import Observed
from langchain_reasc.method.stopping import ASC, Cap, StoppingRule, decide

__all__ = ["promise"]


def promise(rule: StoppingRule, questions: Sequence[Observed], measure: int | None) -> str:
    """How often the rule answers otherwise than counting votes did, on the questions it was learned from.

    Apart: those on which votes were sufficient, and those on which they were split to the end. On the latter an answer
    of the majority is hardly better than another.

    Args:
        rule: the rule that was learned.
        questions: what it was learned from; those that a rule like it cut short show nothing and are left out.
        measure: which of the measures it reads; None reads none.
    """
    compared = [_compared(rule, one, measure) for one in questions if one.counted]
    decided = [differs for sufficient, differs in compared if sufficient]
    split = [differs for sufficient, differs in compared if not sufficient]
    said = [f"learned from {len(questions)} questions without labels"]
    if decided:
        said.append(
            f"of {len(decided)} on which counted votes are sufficient {sum(decided)} would be answered otherwise, so "
            f"at most {_at_most(sum(decided), len(decided)):.1%} of such questions are (95 %)"
        )
    if split:
        said.append(f"of {len(split)} on which votes are split to the end, {sum(split)} would")
    return "; ".join([*said, "agreement is not correctness"])


def _compared(rule: StoppingRule, one: Observed, measure: int | None) -> tuple[bool, bool]:
    """Whether counted votes were sufficient, and whether the rule answers otherwise."""
    responses = one.responses(measure)
    counted = decide(ASC() | Cap(len(responses)), responses)
    return counted.reason == "evidence", decide(rule, responses).answer != counted.answer


def _at_most(differ: int, n: int) -> float:
    """The upper end of the one-sided 95 % interval of Clopper and Pearson."""
    from scipy.stats import binomtest

    return float(binomtest(differ, n, alternative="less").proportion_ci(0.95, method="exact").high)
