"""The questions of a decision model: what each asks, by which labels it is answered, and what the votes come to."""

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic import TypeAdapter, ValidationError

from langchain_reasc.agents.decision_labels import Labels
from langchain_reasc.agents.decision_prompt import decision_prompt
from langchain_reasc.agents.decision_types import (
    Answer,
    Choice,
    ChoiceAnswer,
    ClassifierRequest,
    Noul,
    NoulAnswer,
    Question,
    Score,
    ScoreAnswer,
    State,
)
from langchain_reasc.complaints import explained
from langchain_reasc.exceptions import ConfigurationError, NoVote
from langchain_reasc.method.evidence import posterior
from langchain_reasc.runnable.result import ReASCResult

__all__ = ["AskedQuestion", "asked_questions"]

YES, NO = "yes", "no"


class AskedQuestion:
    """A question about a state, ready to be asked.

    Args:
        id: by which the caller knows it.
        state: what it is about.
        question: a ``Choice``, ``Noul`` or ``Score``, or a dictionary that says the same.

    Attributes:
        labels: what may answer it.
        messages: what the chat model is asked.

    Raises:
        ConfigurationError: a question of another kind, or a label that no response could name.
    """

    def __init__(self, id: str, state: State, question: Question | Mapping[str, Any]) -> None:
        self.id = id
        self._question = _read(id, question)
        meanings = _meanings(self._question)
        self.labels = Labels(meanings)
        self.messages = decision_prompt(state, self._question.instructions, meanings)

    def config(self, above: RunnableConfig) -> RunnableConfig:
        """The config of its samples, which says in their metadata which question they answer."""
        return merge_configs(above, {"metadata": {"reasc_question": self.id}})

    def answer(self, result: ReASCResult) -> Answer:
        """What its responses come to.

        Raises:
            NoVote: none of them names a label.
        """
        if result.answer is None:
            raise NoVote(
                f"no response to the question {self.id!r} names one of its {len(self.labels.names)} labels "
                f"({'; '.join(result.notices)}); if they were cut off, allow the model more tokens",
                [response.message for response in result.responses if response.message is not None],
            )
        shares, confidence = self._shares(result.decision.evidence), posterior(result.decision.evidence)
        if isinstance(self._question, Noul):
            return NoulAnswer(type="noul", noul=shares[YES])
        if isinstance(self._question, Choice):
            return ChoiceAnswer(type="choice", choice=result.answer, probabilities=shares, confidence=confidence)
        levels = {int(label): share for label, share in shares.items()}
        return ScoreAnswer(
            type="score",
            score=sum(level * share for level, share in levels.items()),
            legend=dict(enumerate(self._question.criteria)),
            probabilities=levels,
            confidence=confidence,
        )

    def _shares(self, evidence: Mapping[str, float]) -> dict[str, float]:
        """The probability of each label: (v_a + 1) / (Σv + K)."""
        names = self.labels.names
        total = sum(evidence.values()) + len(names)
        return {name: (evidence.get(name, 0.0) + 1.0) / total for name in names}


def asked_questions(request: ClassifierRequest) -> list[AskedQuestion]:
    """The questions of a request, all of them looked at before anything is paid for.

    Raises:
        ConfigurationError: there is none, or one that cannot be asked.
    """
    questions = request.get("questions") if isinstance(request, Mapping) else None
    if not isinstance(questions, Mapping) or "state" not in request:
        raise ConfigurationError("a request holds a 'state' and its 'questions', a mapping from ids to questions")
    if not questions:
        raise ConfigurationError("a request without a question has no answer")
    return [AskedQuestion(id, request["state"], question) for id, question in questions.items()]


def _read(id: str, question: Question | Mapping[str, Any]) -> "Choice | Noul | Score":
    if isinstance(question, Mapping):
        try:
            question = TypeAdapter[Question](Question).validate_python(question)
        except ValidationError as error:
            raise ConfigurationError(f"the question {id!r}: {explained(error)}") from None
    if isinstance(question, Choice | Noul | Score):
        return question
    kind = getattr(question, "type", type(question).__name__)
    raise ConfigurationError(
        f"the question {id!r} is of the kind {kind!r}, on which no vote can be taken; ReASCDecisionModel "
        "answers Choice, Noul and Score"
    )


def _meanings(question: "Choice | Noul | Score") -> dict[str, Any]:
    """Label -> what it means."""
    if isinstance(question, Choice):
        return {**question.criteria}
    if isinstance(question, Score):
        return {str(level): meaning for level, meaning in enumerate(question.criteria)}
    said = question.criteria
    return {YES: said.true if said else None, NO: said.false if said else None}
