"""Decide objects field by field: numbers by their weighted median, the rest by vote."""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import BLANK, Decision, Response, combine
from langchain_reasc.method.stopping import StoppingRule

__all__ = [
    "ABSENT",
    "WHOLE_LIST",
    "ByField",
    "assembled",
    "field_name",
    "number_in",
    "within",
]

ABSENT: Final = ""
"""The vote for a field that the response's object lacks. It is not valid JSON, so it
differs from all values.
"""

WHOLE_LIST: Final = "\\[]"
"""The field of an answer that is a list. No field of an object has this name: a
backslash there is doubled.
"""

_NUMBER: Final = "a number"
_FAR: Final = "farther away"
_OBJECT: Final = "an object"
_NUMERAL = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TOKEN = re.compile(r"\\.|[^\\]", re.DOTALL)
_SLACK: Final = 1 + 1e-9  # 0.4 is within 0.1 of 0.3


@dataclass(frozen=True)
class ByField(StoppingRule):
    """Apply a rule to each field of the responses' objects separately, and stop when
    all fields have stopped.

    A field of numbers takes their weighted median (the lower of two). The evidence for
    the median is the weight of all numbers within the tolerance of it, against the
    weight of all others. If the others weigh more, only a budget stops the field. Any
    other field is voted on, and so is whether a field is a number.

    Responses without fields cast no vote. If no response has fields, the rule decides
    on whole answers. If some responses are blank, the rule votes on whether there is an
    object, too.

    Attributes:
        rule: decides on each field.
        tolerance: field -> the largest difference at which two numbers agree; 0 by
            default.
        voted: fields whose numbers are names, such as an id, and are voted on.
        accepts: returns whether an assembled object is valid. If it is not, the answer
            is the best object that a single response gave. None accepts every object.
    """

    rule: StoppingRule
    tolerance: Mapping[str, float] = field(default_factory=dict)
    voted: Collection[str] = ()
    accepts: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        for name, value in self.tolerance.items():
            if not 0 <= value < math.inf:
                raise ConfigurationError(
                    f"the tolerance of {name!r} must be a finite number >= 0, got "
                    f"{value}"
                )

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self._decide_fields(responses)
        if not any(response.blank for response in responses):
            return decision
        votes_on_object = [
            response if response.fields is None else response.voting(_OBJECT)
            for response in responses
        ]
        objects = self.rule(votes_on_object)
        if objects.answer == BLANK:
            return objects
        if objects.stop:
            return decision
        return replace(decision, stop=False, reason=None, never_agrees=())

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return those of the rule."""
        return self.rule.weights(responses)

    def _decide_fields(self, responses: Sequence[Response]) -> Decision:
        names: dict[str, None] = {}  # in the order in which they first come
        for response in responses:
            if response.answer is not None and response.fields is not None:
                names.update(dict.fromkeys(response.fields))
        votes = self.rule([response.voting(response.answer) for response in responses])
        if not names:
            return votes
        parts = {name: self._decide_field(name, responses) for name in names}
        whole = self._closest(responses, parts)
        answer = assembled({name: part.answer for name, part in parts.items()})
        if answer is None or (self.accepts is not None and not self.accepts(answer)):
            answer = whole
            whole = None
        return combine(parts, answer=answer, votes=votes, whole=whole)

    def _decide_field(self, name: str, responses: Sequence[Response]) -> Decision:
        spelled = [response.voting(_value(response, name)) for response in responses]
        numbers: list[float | None] = []
        votes_on_type: list[Response] = []
        for response in spelled:
            number = None
            if name not in self.voted:
                number = number_in(response.answer)
            numbers.append(number)
            is_number = number is not None
            votes_on_type.append(response.voting(_NUMBER) if is_number else response)
        decision = self.rule(votes_on_type)
        if decision.answer == _NUMBER:
            median = self._decide_number(
                spelled, numbers, self.tolerance.get(name, 0.0)
            )
            decision = combine(
                {"kind": decision, "answer": median}, answer=median.answer, votes=median
            )
        if decision.never_agrees:
            return replace(decision, never_agrees=(name,))
        return decision

    def _decide_number(
        self,
        responses: Sequence[Response],
        numbers: Sequence[float | None],
        tolerance: float,
    ) -> Decision:
        weights = self.rule.weights(responses)
        weighted = [
            (number, weight, response.answer)
            for number, weight, response in zip(
                numbers, weights, responses, strict=True
            )
            if number is not None
        ]
        middle, spelling = _weighted_median(weighted)
        votes_on_median: list[Response] = []
        for number, response in zip(numbers, responses, strict=True):
            side = None
            if number is not None:
                side = spelling if within(number, middle, tolerance) else _FAR
            votes_on_median.append(response.voting(side))
        split = self.rule(votes_on_median)
        if split.answer == spelling:
            return split
        # Only a budget stops without any answer.
        ended = self.rule([Response(None)] * len(responses))
        return replace(
            split,
            answer=spelling,
            stop=ended.stop,
            reason=ended.reason,
            posterior=1.0 - split.posterior,
        )

    def _closest(
        self, responses: Sequence[Response], parts: Mapping[str, Decision]
    ) -> str | None:
        """Return the answer of the response that agrees with most fields; a tie goes to
        the largest weight.
        """
        weights = self.rule.weights(responses)

        def agreement(index: int) -> tuple[int, float]:
            agreeing = (
                self._agrees(name, _value(responses[index], name), part.answer)
                for name, part in parts.items()
            )
            return sum(agreeing), weights[index]

        voting = [
            index
            for index, response in enumerate(responses)
            if response.answer is not None and response.fields is not None
        ]
        return responses[max(voting, key=agreement)].answer if voting else None

    def _agrees(self, name: str, value: str | None, other_value: str | None) -> bool:
        if value == other_value:
            return True
        number = number_in(value)
        other_number = number_in(other_value)
        if number is None or other_number is None or name in self.voted:
            return False
        return within(number, other_number, self.tolerance.get(name, 0.0))


def assembled(fields: Mapping[str, str | None]) -> str | None:
    """Return the object with these fields (or the list) as canonical JSON, or None if
    the fields contradict each other.

    Args:
        fields: :func:`field_name` -> value as JSON; None and :data:`ABSENT` are left
            out.
    """
    values = {
        name: value
        for name, value in fields.items()
        if value is not None and value != ABSENT
    }
    if WHOLE_LIST in values:
        return values[WHOLE_LIST] if len(values) == 1 else None
    assembled_object: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = _keys(name)
        inner = assembled_object
        for key in path:
            below = inner.setdefault(key, {})
            if not isinstance(below, dict):
                return None
            inner = below
        if last in inner:
            return None
        inner[last] = json.loads(value)
    return json.dumps(assembled_object, sort_keys=True, ensure_ascii=False)


def field_name(keys: Sequence[str]) -> str:
    """Return the name of a nested field, ``a.b``, with a backslash before dots and
    backslashes in a key.
    """
    return ".".join(key.replace("\\", "\\\\").replace(".", "\\.") for key in keys)


@lru_cache(maxsize=4096)  # a decision reads the same few values again and again
def number_in(value: str | None) -> float | None:
    """Parse a JSON number; return None for anything else, including ``true`` and
    ``"5"``.
    """
    if value is None or not _NUMERAL.fullmatch(value):
        return None
    try:
        number: float = json.loads(value)
    except ValueError:  # more digits than Python reads
        return None
    return number if isinstance(number, int) or math.isfinite(number) else None


def within(number: float, other: float, tolerance: float) -> bool:
    """Return whether two finite numbers differ by at most this much; integers may be of
    any size.
    """
    try:
        return abs(number - other) <= tolerance * _SLACK
    except OverflowError:  # one is a whole number beyond all floats, the other a float
        return False


def _keys(name: str) -> list[str]:
    keys = [""]
    for token in _TOKEN.findall(name):
        if token == ".":
            keys.append("")
        else:
            keys[-1] += token[-1]
    return keys


def _value(response: Response, name: str) -> str | None:
    if response.answer is None or response.fields is None:
        return None
    return response.fields.get(name, ABSENT)


def _weighted_median(
    votes: Sequence[tuple[float, float, str | None]],
) -> tuple[float, str | None]:
    """Return the first spelling of the lowest number that reaches half of the weight.

    Args:
        votes: (number, weight, spelling) for each response; not empty.
    """
    half = sum(weight for _, weight, _ in votes) / 2
    reached = 0.0
    ranked = sorted(votes, key=lambda vote: vote[0])
    middle = ranked[-1][0]  # where rounding keeps the sum below half
    for number, weight, _ in ranked:
        reached += weight
        if reached >= half:
            middle = number
            break
    return middle, next(spelling for number, _, spelling in votes if number == middle)
