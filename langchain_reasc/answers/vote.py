"""What a response votes for: a property of the whole message, not of its text alone."""

from dataclasses import dataclass

from langchain_core.messages import AIMessage

from langchain_reasc.answers.extractors import Extractor

__all__ = ["Vote", "vote_of"]


@dataclass(frozen=True, slots=True)
class Vote:
    """What a response votes for.

    Attributes:
        answer: the normalized answer; None when it casts no vote.
        cut_off: whether the response was cut off before its end. It may then vote, but not be accepted alone.
        why_none: why it casts no vote, for a notice; None where it does.
    """

    answer: str | None
    cut_off: bool = False
    why_none: str | None = None


def vote_of(message: AIMessage, extract: Extractor) -> Vote:
    """The vote of a response.

    Args:
        message: the response.
        extract: finds the answer in its text.
    """
    answer = extract(str(message.text))
    return Vote(answer, why_none=None if answer is not None else "no answer was found in it")
