"""What the runnable, the chat model and the middleware's models have in common: options,
and the voter or the cascade that is made from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import (
    Runnable,
    RunnableBinding,
    RunnableConfig,
    RunnableSerializable,
)
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.configurable import RunnableConfigurableFields
from langchain_core.runnables.utils import AnyConfigurableField
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, PrivateAttr, model_validator

from langchain_reasc.answers import schemas_of
from langchain_reasc.calibration import (
    Calibration,
    ConsensusCalibrator,
    EscalationLearner,
    MixtureCalibrator,
)
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.named import model_of
from langchain_reasc.models.wrappers import leaves
from langchain_reasc.runnable.cascade import Cascade, LargeModel, Solver, voter_of
from langchain_reasc.runnable.options import Options, refuse_former_names
from langchain_reasc.runnable.voter import Voter
from langchain_reasc.threads import in_thread

Calibrator = MixtureCalibrator | ConsensusCalibrator | EscalationLearner
"""What learns with ``calibration="online"`` or ``"mixture"``."""


class Face(Options):
    """Options, and what is made from them.

    Assigning to an option, and ``model_copy(update=...)``, check all options again.
    Pickling keeps the options.
    """

    _learns_of: ClassVar[frozenset[str]] = frozenset(
        {"calibration", "confidence", "model"}
    )
    """The options that what was learned depends on."""
    _quiet: ClassVar[bool] = False
    """Whether the samples are parts of one model call, the only one that callbacks see.
    """
    _all_signals: ClassVar[bool] = False
    """Whether every token signal of a response is recorded, to choose among them."""
    _solver: Solver = PrivateAttr()
    _made: Runnable[LanguageModelInput, Any] | None = PrivateAttr(default=None)
    """The model that was made from a name."""
    _made_larger: Runnable[LanguageModelInput, Any] | None = PrivateAttr(default=None)
    """The larger model that was made from a name."""

    @model_validator(mode="after")
    def _prepare(self) -> Self:
        model = self.sampled
        if isinstance(model, Face) or any(
            isinstance(leaf.model, Face) for leaf in leaves(model, {})
        ):
            raise ConfigurationError(
                f"model= is already a ReASC model ({model.get_name()}). Pass the chat "
                "model it wraps; nesting would multiply the samples by "
                f"{self.max_samples}"
            )
        larger = self.larger
        escalation = self.escalation
        if escalation is not None and (
            larger is model
            or (isinstance(self.model, str) and escalation.model == self.model)
        ):
            raise ConfigurationError(
                f"escalate_to is model= itself ({model.get_name()}); give a larger "
                "model, or bind other arguments"
            )
        self._solver = self._make_solver(model, larger)
        return self

    def _make_solver(
        self,
        model: Runnable[LanguageModelInput, Any],
        larger: Runnable[LanguageModelInput, Any] | None,
    ) -> Solver:
        options = BaseModel.__copy__(self)
        voter = Voter.from_options(
            options,
            model,
            quiet=self._quiet,
            is_small=larger is not None,
            all_signals=self._all_signals,
        )
        solver: Solver = voter
        if larger is not None:
            large = _large_model(options, larger, quiet=self._quiet)
            solver = Cascade.from_options(options, voter, large)
        voter.check(quiet=self._quiet)
        return solver

    @property
    def _voter(self) -> Voter:
        """The only model, or the small one."""
        return voter_of(self._solver)

    @property
    def sampled(self) -> Runnable[LanguageModelInput, Any]:
        """The model, even if only its name was given."""
        if not isinstance(self.model, str):
            return self.model
        if self._made is None:
            self._made = model_of(self.model)
        return self._made

    @property
    def larger(self) -> Runnable[LanguageModelInput, Any] | None:
        """The model of ``escalate_to``, even if only its name was given."""
        if self.escalation is None:
            return None
        model = self.escalation.model
        if not isinstance(model, str):
            return model
        if self._made_larger is None:
            self._made_larger = model_of(model)
        return self._made_larger

    def _checking_calls(self, tools: Sequence[Any]) -> Self:
        """Return a copy that checks calls of these tools by their classes; models may
        have their JSON schemas alone.
        """
        classes = {
            name: schema
            for name, schema in schemas_of(tools).items()
            if isinstance(schema, type)
        }
        if not classes:
            return self
        copy = BaseModel.__copy__(self)
        copy._solver = self._solver.with_classes(classes)
        return copy

    def _held_to(self, schema: Any) -> Self:
        """Return a copy whose answers are held to a schema, so that an object which is
        put together from several parses as each of them does.
        """
        if schema is None or self._voter.extract.objects is None:
            return self
        copy = BaseModel.__copy__(self)
        copy._solver = self._solver.held_to(typed_schema(schema))
        return copy

    @property
    def calibrator(self) -> Calibrator | None:
        """What learns with ``calibration="online"`` or ``"mixture"``. Copies of a
        runnable share it.
        """
        return self._solver.learner

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use. A learned calibration can be saved, and given to the
        next process.
        """
        return self._solver.learned

    def record_outcome(self, answered: AIMessage | str, correct: bool) -> bool:
        """Tell ``calibration="online"`` whether an answer was right. Return False if
        the question is unknown or old.

        Args:
            answered: the message, or the ``id`` in its account.
            correct: whether its answer was right.

        Raises:
            ConfigurationError: nothing is learned here, or the message is not one of
                ReASC's.
        """
        online = self._voter.online
        if online is None:
            beside = "" if self.escalate_to is None else " without escalate_to"
            raise ConfigurationError(
                f"outcomes are learned with calibration='online'{beside}, not "
                f"{self.calibration!r}"
            )
        id = question_id(answered)
        return id is not None and online.record_outcome(id, bool(correct))

    async def arecord_outcome(self, answered: AIMessage | str, correct: bool) -> bool:
        """The asynchronous :meth:`record_outcome`, in a thread."""
        return await in_thread(self.record_outcome, answered, correct)

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """Return a copy with other options, which are checked. The copy shares the
        model and what has been learned.
        """
        changed = dict(update or {})
        fields = {name: getattr(self, name) for name in self.model_fields_set} | changed
        name = fields["model"]
        if self._made is None or name != self.model:
            copy = type(self)(**fields)
        else:
            # One model made from a name is enough.
            copy = type(self)(**fields | {"model": self._made})
            copy.__dict__["model"] = name
            copy._made = self._made
        if self.calibrator is not None and not changed.keys() & self._learns_of:
            copy._go_on_with(self.calibrator)
        return copy

    def _go_on_with(
        self, calibrator: Calibrator, *, other_answers: bool = False
    ) -> None:
        """Learn together with another one that learns of the same, instead of anew."""
        self._solver = self._solver.learning_with(
            calibrator, other_answers=other_answers
        )

    def configurable_fields(
        self, **kwargs: AnyConfigurableField
    ) -> RunnableSerializable[Any, Any]:
        """As in LangChain. What is configured for a call learns together with this
        one.
        """
        names = type(self).model_fields
        refuse_former_names(kwargs)
        unknown = kwargs.keys() - names.keys()
        if unknown:
            raise ConfigurationError(
                f"no option is called {', '.join(sorted(unknown))}; there are "
                f"{', '.join(names)}"
            )
        return _Configurable(default=cast(Any, self), fields=kwargs)

    def __copy__(self) -> Self:
        return self.model_copy()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return a copy that shares the model and what has been learned."""
        return self.model_copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the options. To keep what was learned, save :attr:`learned`, or
        give ``Online`` a file for it.
        """
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return _unpickle, (type(self), fields)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Options.model_fields:
            refuse_former_names([name])
            super().__setattr__(name, value)
            return
        changed = self.model_copy(update={name: value})
        self.__dict__.clear()  # of what was cached, too
        self.__dict__.update(changed.__dict__)
        self.model_fields_set.update(changed.model_fields_set)
        self._solver = changed._solver
        self._made = changed._made
        self._made_larger = changed._made_larger


AnyFace = TypeVar("AnyFace", bound=Face)


def with_other_answers(face: AnyFace, answer: Any, **changed: Any) -> AnyFace:
    """Return a copy that votes on other answers and learns together with the original.

    The answers are part of the kind of request, so what is learned of the one is not
    mixed up with the other.

    Args:
        face: the original.
        answer: where the answer is in a response.
        changed: further options of the copy.
    """
    update = {**changed, "answer": answer}
    if face.online is not None and "calibration" not in changed:
        # Without a file, because the file of the original would refuse a calibrator of
        # its own for other answers.
        update["calibration"] = replace(face.online, state=None)
    copy = face.model_copy(update=update)
    if face.calibrator is not None:
        copy._go_on_with(face.calibrator, other_answers=True)
    return copy


def question_id(answered: AIMessage | str) -> str | None:
    """Return the ``id`` for an outcome: the given one, or that of a message's account;
    None if there was no vote.

    Raises:
        ConfigurationError: the message is not one of ReASC's.
    """
    if isinstance(answered, str):
        return answered
    account: dict[str, Any] | None = answered.response_metadata.get("reasc")
    if account is None:
        raise ConfigurationError(
            "the message has no response_metadata['reasc']; give one that ReASC "
            "returned"
        )
    return account.get("id")


def typed_schema(schema: Any) -> Any:
    """Return a schema as a pydantic class or as JSON schema."""
    if schema is None or isinstance(schema, Mapping) or is_basemodel_subclass(schema):
        return schema
    return convert_to_json_schema(schema)


class _Configurable(RunnableConfigurableFields):  # type: ignore[type-arg]  # pydantic would convert what is made
    """Makes a copy with the options of each call, which learns together with the
    others.
    """

    def prepare(
        self, config: RunnableConfig | None = None
    ) -> tuple[Runnable[Any, Any], RunnableConfig]:
        configured, config = super().prepare(config)
        calibrator = getattr(self.default, "calibrator", None)
        if calibrator is not None and isinstance(configured, Face):
            configured._go_on_with(calibrator)
        return configured, config


def _large_model(
    options: Options, model: Runnable[LanguageModelInput, Any], *, quiet: bool
) -> LargeModel:
    """Return how the larger model is asked: once, or as the ReASC model that it is."""
    inner: Any = model
    arguments: dict[str, Any] = {}
    config: RunnableConfig = {}
    while isinstance(inner, RunnableBinding) and not inner.config_factories:
        config = merge_configs(inner.config, config)
        arguments = {**inner.kwargs, **arguments}
        inner = inner.bound
    # Not a wrapper around one: fallbacks would be lost.
    if not isinstance(inner, Face):
        return LargeModel.asked_once(options, model, quiet=quiet)
    voter = inner._solver
    if isinstance(voter, Cascade):
        raise ConfigurationError(
            "the model of escalate_to has an escalate_to of its own; give two models, "
            "not three"
        )
    if quiet:
        voter = voter.quiet()
    return LargeModel(
        voter=voter, is_asked_once=False, arguments=arguments, config=config
    )


def _unpickle(kind: type[Face], fields: dict[str, Any]) -> Face:
    return kind(**fields)
