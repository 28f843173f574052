"""What decides on many questions at once must decide as it does on each of them."""

from collections.abc import Sequence

import numpy as np
from langchain_reasc_lab.replay.decide_many import GOES_ON, REASONS, decide_many
from langchain_reasc_lab.replay.vote_arrays import Votes

from langchain_reasc.method.decision import Response
from langchain_reasc.method.stopping import StoppingRule, decide


def check_against_each(rule: StoppingRule, pool: Sequence[Sequence[Response]], one_by_one: Sequence[int] = ()) -> None:
    """Answer, samples and reason of every question; those in ``one_by_one`` cannot be decided on arrays."""
    votes, special = Votes.of(pool), np.isin(np.arange(len(pool)), one_by_one)
    made = decide_many(rule, votes, pool.__getitem__, one_by_one=special)
    for at, responses in enumerate(pool):
        decision = decide(rule, responses)
        answers = [one.answer for one in responses]
        answer = None if made.answers[at] < 0 else answers[votes.answers[at].tolist().index(made.answers[at])]
        reason = None if made.reasons[at] == GOES_ON else REASONS[made.reasons[at]]
        assert (answer, made.samples[at], reason) == (decision.answer, decision.samples, decision.reason), rule
