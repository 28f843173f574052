"""Present a wrapper as the chat model inside it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from pydantic import ConfigDict, Field, model_validator

from langchain_reasc.answers import STRUCTURE
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.langchain_internals import langsmith_params
from langchain_reasc.models.wrappers import is_configurable, leaves, name_of_model
from langchain_reasc.runnable.face import Face
from langchain_reasc.runnable.options import Escalation, Online, Options

AnyRunnable = Runnable[Any, Any]


class ChatModelAround(Face, BaseChatModel):
    """A chat model with the name, the capabilities, the handlers and the token counts
    of the one inside.
    """

    model_config = ConfigDict(extra="forbid")
    _quiet: ClassVar[bool] = True

    temperature: float | None = Field(
        default=None,
        ge=0,
        description="""
        For the calls of the model inside, in place of what is set there; as are the
        next two.
        """,
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of a response at most.",
    )
    stop: list[str] | None = Field(
        default=None,
        description="Strings that end a response.",
    )
    streaming: bool = Field(
        default=False,
        description="""
        Whether ``invoke`` calls handlers with tokens, as ``stream`` does.
        """,
    )

    @model_validator(mode="after")
    def _set_model_profile(self) -> Self:
        """Copy the inner model's settings; replaces LangChain's validator of this name,
        which would find no profile.
        """
        inner = self._inner
        if (
            inner is None
            and not is_configurable(self.sampled)
            and not isinstance(self.sampled, Face)
        ):
            raise ConfigurationError(
                "ChatReASC stands around a chat model, and there is none in "
                f"{type(self.sampled).__name__}; give the chat model itself, or use "
                "ReASCRunnable, which takes any Runnable that returns an AIMessage"
            )
        if inner is None:
            return self
        # Handlers see this model's run alone.
        settings = _run_config(self.sampled)
        for name in ("verbose", "cache", "profile"):
            settings[name] = getattr(inner, name)
        for name, value in settings.items():
            # Not by assignment, which would be kept when the model is replaced.
            if name not in self.model_fields_set:
                self.__dict__[name] = value
        return self

    @property
    def _inner(self) -> BaseChatModel | None:
        """The chat model that answers first, out of its bindings, retries and
        fallbacks; None if a config chooses.
        """
        return next((leaf.model for leaf in leaves(self.sampled, {})), None)

    @property
    def model_name(self) -> str:
        """The name of the model inside, as its provider knows it."""
        inner = self._inner
        return "" if inner is None else name_of_model(inner) or inner.get_name()

    @property
    def _llm_type(self) -> str:
        return "reasc"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        names = {*Options.model_fields, *ChatModelAround.__annotations__, "when"}
        names -= {"model", "escalate_to", "streaming"}
        options = {
            name: value
            for name in sorted(names)
            if (value := getattr(self, name, None)) is not None
        }
        described = {
            name: getattr(value, "__qualname__", None) or str(value)
            for name, value in options.items()
        }
        described["tool_votes"] = str(self.tool_votes.as_plain())
        if isinstance(self.calibration, Calibration):
            described["calibration"] = (
                f"{self.calibration.summary()} "
                f"({self.calibration.created_at.isoformat()})"
            )
        models = {"model": _identified(self.sampled)}
        if self.larger is not None:
            models["escalate_to"] = _identified(self.larger)
        if isinstance(self.escalate_to, Escalation):
            models["escalate_to"]["within"] = str(self.escalate_to.within)
            models["escalate_to"]["prices"] = str(self.escalate_to.prices)
        return {**models, **described}

    def _get_ls_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> LangSmithParams:
        inner = self._inner
        arguments = {**self._arguments, **kwargs}
        stop = stop or arguments.pop("stop", None)
        if inner is None:
            return super()._get_ls_params(stop, **arguments)
        return langsmith_params(inner, stop=stop, **arguments)

    @property
    def _arguments(self) -> dict[str, Any]:
        """The arguments set here for calls of the inner model."""
        arguments = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "stop": self.stop,
        }
        return {name: value for name, value in arguments.items() if value is not None}

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return whether LangChain can serialise it: yes, where it can serialise the
        model and the options.
        """
        return True

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """Options that are records, as plain data."""
        plain: dict[str, Any] = {"tool_votes": self.tool_votes.as_plain()}
        if isinstance(self.calibration, Calibration):
            plain["calibration"] = self.calibration.model_dump(
                mode="json", by_alias=True
            )
        if isinstance(self.calibration, Online):
            state = self.calibration.state
            plain["calibration"] = {
                "state": None if state is None else str(state),
                "audit": self.calibration.audit,
            }
        if self.measure is not None:
            plain["confidence"] = asdict(self.measure)
        if isinstance(self.escalate_to, Escalation):
            plain["escalate_to"] = {
                "model": self.escalate_to.model,
                "within": self.escalate_to.within,
                "prices": self.escalate_to.prices,
            }
        return plain

    @property
    def _counter(self) -> Any:
        """What counts tokens: the inner model; LangChain's default where a config
        chooses the model.
        """
        return self._inner or super()

    def get_token_ids(self, text: str) -> list[int]:
        """Return the ids of a text's tokens in the model inside."""
        ids: list[int] = self._counter.get_token_ids(text)
        return ids

    def get_num_tokens(self, text: str) -> int:
        """Return the number of a text's tokens, as the model inside counts them."""
        return int(self._counter.get_num_tokens(text))

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Return the number of tokens of messages, as the model inside counts them."""
        return int(self._counter.get_num_tokens_from_messages(messages, tools))


def _identified(model: AnyRunnable) -> dict[str, Any]:
    """Return what identifies the chat model that answers first in a wrapper; nothing if
    a config chooses it.
    """
    inner = next((leaf.model for leaf in leaves(model, {})), None)
    if inner is None:
        return {}
    return {**inner._identifying_params, "_type": inner._llm_type}


def _run_config(model: AnyRunnable) -> dict[str, Any]:
    """Return the callbacks, tags and metadata of a model's runs: those set on it, and
    those bound around it.
    """
    config: RunnableConfig = {}
    while isinstance(model, RunnableBindingBase):
        config = merge_configs(model.config, config)
        model = model.bound
    names = ("callbacks", "tags", "metadata")
    settings = {name: getattr(model, name, None) for name in names}
    merged: dict[str, Any] = {**merge_configs(cast(RunnableConfig, settings), config)}
    return {name: merged.get(name) or None for name in names}


def asks_for_structure(arguments: dict[str, Any]) -> bool:
    """Return whether the arguments of a call ask for structured output in the text of
    the response.
    """
    return any(arguments.get(name) for name in STRUCTURE)


def requires_tool_call(arguments: Mapping[str, Any]) -> bool:
    """Return whether the arguments of a call force the model to call a tool."""
    return _tool_choice(arguments) not in (None, False, "auto", "none")


def may_call_tools(model: AnyRunnable, arguments: Mapping[str, Any]) -> bool:
    """Return whether a response may call tools: some are bound to the model or set on
    it, and it may call them.
    """
    return _tool_choice(arguments) != "none" and any(
        leaf.given(name)
        for leaf in leaves(model, arguments)
        for name in ("tools", "functions")
    )


def _tool_choice(arguments: Mapping[str, Any]) -> Any:
    choice = arguments.get("tool_choice")
    return choice.get("type") if isinstance(choice, Mapping) else choice
