"""LangChain's types of decisions, where langchain-core has them (from 1.8 on)."""

from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langchain_reasc.exceptions import MissingExtraError

if TYPE_CHECKING or find_spec("langchain_core.decisions"):
    from langchain_core.decisions import (
        Answer,
        BaseDecisionModel,
        Choice,
        ChoiceAnswer,
        ClassifierRequest,
        ClassifierResponse,
        Noul,
        NoulAnswer,
        Question,
        Score,
        ScoreAnswer,
        State,
    )
else:

    class _Absent:
        """A base that lets a class be defined, and so its module be imported, but not be used."""

        def __new__(cls, *_: Any, **__: Any) -> Any:
            raise MissingExtraError(
                f"{cls.__name__} needs langchain_core.decisions, which langchain-core has from 1.8 on "
                f"({version('langchain-core')} is installed). Install it with: pip install 'langchain-core>=1.8'",
                name="langchain_core.decisions",
            )

    BaseDecisionModel = ClassifierResponse = _Absent
    Answer = ChoiceAnswer = NoulAnswer = ScoreAnswer = ClassifierRequest = Question = State = Any
    Choice = Noul = Score = _Absent

__all__ = [
    "Answer",
    "BaseDecisionModel",
    "Choice",
    "ChoiceAnswer",
    "ClassifierRequest",
    "ClassifierResponse",
    "Noul",
    "NoulAnswer",
    "Question",
    "Score",
    "ScoreAnswer",
    "State",
]
