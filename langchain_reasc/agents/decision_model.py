"""``ReASCDecisionModel``: classify with as many samples of a chat model as each decision needs.

LangChain has decision models from langchain-core 1.8 on.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from langchain_core.messages import BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from langchain_reasc.agents.decision_prompt import ANY_LABEL, Labels, decision_prompt
from langchain_reasc.answers import Extractor
from langchain_reasc.complaints import explained
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError, NoVote
from langchain_reasc.models.prepared import ModelOrName
from langchain_reasc.runnable.loop import answer, ask
from langchain_reasc.runnable.options import Options
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.threads import blocking

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
        """A base class that raises when it is used; so this module can be imported without langchain_core.decisions."""

        def __new__(cls, *_: Any, **__: Any) -> Any:
            raise MissingExtraError(
                f"{cls.__name__} needs langchain_core.decisions, which langchain-core has from 1.8 on "
                f"({version('langchain-core')} is installed). Install it with: pip install 'langchain-core>=1.8'",
                name="langchain_core.decisions",
            )

    BaseDecisionModel = ClassifierResponse = _Absent
    Answer = ChoiceAnswer = NoulAnswer = ScoreAnswer = ClassifierRequest = Question = State = Any
    Choice = Noul = Score = _Absent

YES, NO = "yes", "no"


class DecisionResponse(ClassifierResponse):
    """The answers of a :class:`ReASCDecisionModel`, and the account of each."""

    reasc: dict[str, dict[str, Any]]
    """Question id -> what was decided and spent, which is what ``response_metadata["reasc"]`` holds elsewhere."""


class ReASCDecisionModel(Options, BaseDecisionModel):
    """Answers choices, yes/no questions and scores by what a chat model says when it thinks about them several times.

    Stands wherever LangChain takes a decision model, as ``ModelRouterMiddleware(classifier=...)`` does. Each question
    of a request is asked on its own, one after the other: the chat model thinks step by step and ends with a label, and
    it is sampled until the evidence for one label is sufficient (ReASC). A response that names none casts no vote.

    With v_a the evidence of label a, the sum of the weights of its votes, and K labels, the probability of a is
    ``(v_a + 1) / (Σv + K)``. The labels of a yes/no question (``Noul``) are "yes" and "no"; those of a score are its
    levels, and the score is the expected level. The confidence of a choice and of a score is Eq. 5, whatever the rule:
    the probability that the leading label stays ahead of the second. So a decision whose budget or time ran out has a
    low one: set a threshold, as for any decision model. ``response.reasc`` says of each question why sampling stopped.

    The samples are runs below the decision's own, which is a chain to tracers: their usage is counted there, once.

    A calibration is measured on decisions: :meth:`prompt` makes what :func:`langchain_reasc.calibrate` asks, with
    ``answer=ReASCDecisionModel.answer``.

    Example:
        >>> decisions = ReASCDecisionModel(llm=llm)
        >>> urgent = Noul(instructions="Does this message require an urgent response?")
        >>> decisions.invoke({"state": "Production is down.", "questions": {"urgent": urgent}}).nouls["urgent"].noul
        0.8333333333333334
    """

    model_config = ConfigDict(extra="forbid")  # which LangChain's base would loosen

    llm: ModelOrName = Field(kw_only=False)
    """A chat model (or a binding of one), or its name, as :attr:`langchain_reasc.ReASCRunnable.model`."""
    model: str = ""
    """The name given in answers; empty for that of the chat model."""

    answer: ClassVar[Extractor] = ANY_LABEL  # type: ignore[misc]
    """What finds the label in a response, for :func:`langchain_reasc.calibrate`."""

    _model_field: ClassVar[str] = "llm"

    @model_validator(mode="after")
    def _set_name(self) -> Self:
        if self.on_undecided == "abstain" or self.abstain_below is not None:
            raise ConfigurationError("a decision has no empty answer to abstain with: read its confidence instead")
        # Not by assignment, which would count as given.
        self.__dict__["model"] = self.model or self._setup.fingerprint.model or self.sampled.get_name()
        return self

    if not TYPE_CHECKING:  # type checkers see the signature pydantic makes from the fields

        def __init__(self, llm: Any = None, **fields: Any) -> None:
            if isinstance(fields.get("model"), Runnable):
                raise ConfigurationError("the chat model of a ReASCDecisionModel is its llm=...; model= is a name")
            super().__init__(**({} if llm is None else {"llm": llm}), **fields)

    @staticmethod
    def prompt(state: State, question: Question) -> list[BaseMessage]:
        """Return the messages for the chat model.

        Raises:
            ConfigurationError: a question of another kind than choice, yes/no and score, or a label nobody can name.
        """
        return _DecisionQuestion("", state, question).messages

    def invoke(self, input: ClassifierRequest, config: RunnableConfig | None = None, **kwargs: Any) -> DecisionResponse:
        """Answer the questions of a request.

        Args:
            input: the state and the questions.
            config: callbacks, tags, metadata, run name; ``max_concurrency`` bounds the samples in flight of a request,
                and in a batch how many requests are at work.
            **kwargs: passed to every call of the chat model.

        Returns:
            The answers, the bill of all samples, and in ``reasc`` the account of each question.

        Raises:
            ConfigurationError: a request without questions, or with one that cannot be answered; nothing was paid for.
            NoVote: no response to a question names one of its labels.
            SamplingError: no sample could be drawn; SampleTimeout where that is because none ended in time.
            LogprobsUnavailable: a calibration needs logprobs and the model returned none.
            FingerprintMismatch: the calibration was made with another prompt.
        """
        answers = partial(self._answers, kwargs=kwargs)
        return cast(DecisionResponse, self._call_with_config(answers, input, config, run_type="chain"))

    async def ainvoke(
        self, input: ClassifierRequest, config: RunnableConfig | None = None, **kwargs: Any
    ) -> DecisionResponse:
        """The asynchronous :meth:`invoke`."""
        answers = partial(self._aanswers, kwargs=kwargs, is_async=True)
        return cast(DecisionResponse, await self._acall_with_config(answers, input, config, run_type="chain"))

    @property
    def _provider(self) -> str:
        return "reasc"

    def _classify(self, state: State, questions: dict[str, Question]) -> DecisionResponse:
        return self._answers({"state": state, "questions": questions}, ensure_config(), {})

    async def _aclassify(self, state: State, questions: dict[str, Question]) -> DecisionResponse:
        request: ClassifierRequest = {"state": state, "questions": questions}
        return await self._aanswers(request, ensure_config(), {}, is_async=True)

    def _answers(self, request: ClassifierRequest, config: RunnableConfig, kwargs: Any) -> DecisionResponse:
        return blocking(self._aanswers(request, config, kwargs, is_async=False))

    async def _aanswers(
        self, request: ClassifierRequest, config: RunnableConfig, kwargs: Any, *, is_async: bool
    ) -> DecisionResponse:
        answers: dict[str, Answer] = {}
        accounts: dict[str, dict[str, Any]] = {}
        bill: UsageMetadata | None = None
        for question in _questions_of(request):
            with _noting(question, answers):
                setup = self._setup.with_answers(question.labels.extractor)
                below = merge_configs(config, {"metadata": {"reasc_question": question.id}})
                result = await answer(await ask(Request(setup, question.messages, below, kwargs, is_async=is_async)))
                answers[question.id] = question.answer(result)
            accounts[question.id] = result.message.response_metadata["reasc"]
            bill = add_usage(bill, result.usage.bill)
        return DecisionResponse(model=self.model, answers=answers, usage=bill, reasc=accounts)


class _DecisionQuestion:
    """A question about a state, with its labels and its prompt.

    Raises:
        ConfigurationError: a question of another kind, or a label that no response could name.
    """

    def __init__(self, id: str, state: State, question: Question | Mapping[str, Any]) -> None:
        self.id = id
        self._question = _checked_question(id, question)
        meanings = _labels_of(self._question)
        self.labels = Labels(meanings)
        self.messages = decision_prompt(state, self._question.instructions, meanings)

    def answer(self, result: ReASCResult) -> Answer:
        """Return the answer that its votes give; the probability of each label is (v_a + 1) / (Σv + K).

        The confidence is P(the label stays ahead of the others and of "no label"), not that it is right.

        Raises:
            NoVote: none of them names a label.
        """
        if result.answer is None:
            raise NoVote(
                f"no response to the question {self.id!r} names one of its {len(self.labels.names)} labels "
                f"({'; '.join(result.notices)}); if they were cut off, allow the model more tokens",
                [response.message for response in result.responses if response.message is not None],
            )
        evidence = result.decision.evidence
        total = sum(evidence.values()) + len(self.labels.names)
        shares = {name: (evidence.get(name, 0.0) + 1.0) / total for name in self.labels.names}
        confidence = result.decision.posterior
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


def _questions_of(request: ClassifierRequest) -> list[_DecisionQuestion]:
    """Return the questions of a request, all checked before anything is paid for.

    Raises:
        ConfigurationError: there is none, or one that cannot be answered.
    """
    questions = request.get("questions") if isinstance(request, Mapping) else None
    if not isinstance(questions, Mapping) or "state" not in request:
        raise ConfigurationError("a request holds a 'state' and its 'questions', a mapping from ids to questions")
    if not questions:
        raise ConfigurationError("a request without a question has no answer")
    return [_DecisionQuestion(id, request["state"], question) for id, question in questions.items()]


def _checked_question(id: str, question: Question | Mapping[str, Any]) -> "Choice | Noul | Score":
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


def _labels_of(question: "Choice | Noul | Score") -> dict[str, Any]:
    """Return label -> what it means."""
    if isinstance(question, Choice):
        return {**question.criteria}
    if isinstance(question, Score):
        return {str(level): meaning for level, meaning in enumerate(question.criteria)}
    criteria = question.criteria
    return {YES: criteria.true if criteria else None, NO: criteria.false if criteria else None}


@contextmanager
def _noting(question: _DecisionQuestion, answers: dict[str, Answer]) -> Iterator[None]:
    """Add to an error the question that raised it, and the answers already paid for."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in answering the question {question.id!r}")
        for id, answered in answers.items():
            error.add_note(f"{id!r} had been answered: {answered!r}")
        raise
