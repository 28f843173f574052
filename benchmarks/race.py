"""Why equal votes alone are not the default of ``escalate_to=``: ``python -m
benchmarks.race FOLDER``, recordings as of reasc bench.

Three equal votes of a small model stand, and all else goes to a large one
(``rule="race"``). A pair is two recordings of the same questions, the large one clearly
better: its share of right answers minus the small one's has an interval above 0. The
difference in right answers to the large model alone is exact over all orders of the
recorded responses, with a 95 % interval over questions.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations
from math import comb
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from langchain_reasc_lab.pools import PoolQuestion
from langchain_reasc_lab.replay.recordings import open_recording, recordings_in

from benchmarks.command import parser_of
from benchmarks.defaults import question_set
from langchain_reasc.calibration import DEFAULT_RACE

_FEWEST: Final = 40
"""The questions that two recordings must have in common."""


class Asked(NamedTuple):
    """What a model says to a question.

    Attributes:
        accepted: how likely its first responses are equal votes.
        right: how likely these are right, too.
        once: how likely one response is right.
    """

    accepted: float
    right: float
    once: float


class Difference(NamedTuple):
    """A difference in points, with its 95 % interval over questions."""

    value: float
    low: float
    high: float


def asked(question: PoolQuestion) -> Asked:
    """Return what a model says to a question, over all orders of its responses."""
    votes = DEFAULT_RACE.votes
    responses = question.responses
    orders = comb(len(responses), votes)
    answers = Counter(
        response.answer
        for response in responses
        if response.answer is not None and not response.cut_off
    )
    is_right = {response.answer: bool(response.correct) for response in responses}
    accepted = 0.0
    right = 0.0
    for answer, count in answers.items():
        likely = comb(count, votes) / orders
        accepted += likely
        right += likely * is_right[answer]
    once = np.mean([bool(response.correct) for response in responses])
    return Asked(accepted, right, float(once))


def difference(values: Sequence[float]) -> Difference:
    """Return the mean of differences by question, in points."""
    mean = 100 * np.mean(values)
    margin = 196 * np.std(values, ddof=1) / np.sqrt(len(values))
    return Difference(float(mean), float(mean - margin), float(mean + margin))


def read(path: Path) -> dict[str, Asked]:
    """Return id -> what the model says, of the questions with enough responses."""
    with open_recording(path) as pool:
        return {
            question.id: asked(question)
            for question in pool.questions
            if len(question.responses) >= DEFAULT_RACE.votes
        }


def compare(
    small: Mapping[str, Asked], large: Mapping[str, Asked]
) -> tuple[Difference, float] | None:
    """Return what the race gains beside the large model alone, and the share of its
    answers that are the small model's; None if the two are no pair.
    """
    shared = [(small[id], large[id]) for id in small.keys() & large.keys()]
    if len(shared) < _FEWEST:
        return None
    ahead = difference([other.once - one.once for one, other in shared])
    if ahead.low <= 0:
        return None
    gained = difference(
        [one.right - one.accepted * other.once for one, other in shared]
    )
    return gained, float(np.mean([one.accepted for one, _ in shared]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each set of questions."""
    parser = parser_of("race", __doc__)
    parser.add_argument("folder", type=Path, help="a folder of recordings")
    given = parser.parse_args(arguments)
    sets: dict[str, dict[str, Mapping[str, Asked]]] = defaultdict(dict)
    for path in recordings_in(given.folder):
        sets[question_set(path.stem)][path.stem] = read(path)
    print(
        "| questions | pairs | the race loses clearly | gains clearly | median points | "
        "worst pair |"
    )
    print("|---|---|---|---|---|---|")
    for title, recordings in sorted(sets.items()):
        found: dict[str, Difference] = {}
        for small, large in permutations(recordings, 2):
            compared = compare(recordings[small], recordings[large])
            if compared is not None:
                gained, share = compared
                name = f"{small} → {large}, {share:.0%} by the small one"
                found[name] = gained
        if not found:
            continue
        loses = sum(gained.high < 0 for gained in found.values())
        gains = sum(gained.low > 0 for gained in found.values())
        median = np.median([gained.value for gained in found.values()])
        worst = min(found, key=lambda name: found[name].value)
        value, low, high = found[worst]
        print(
            f"| {title} | {len(found)} | {loses} | {gains} | {median:+.1f} | {worst}: "
            f"{value:+.1f} [{low:+.1f}, {high:+.1f}] |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
