"""What a chat model around another says of itself: what that one would say."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import BaseMessage
from pydantic import ConfigDict, Field, model_validator

from langchain_reasc.agents.inner import chat_model_inside, name_of, told_of
from langchain_reasc.answers import ToolVotes
from langchain_reasc.calibration import Calibration
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.wrappers import is_configurable
from langchain_reasc.runnable.options import Options

__all__ = ["StandIn"]


class StandIn(Options, BaseChatModel):
    """A chat model that stands in for the one inside: its name, its capabilities, its handlers, its way to count."""

    model_config = ConfigDict(extra="forbid")
    _quiet: ClassVar[bool] = True

    temperature: float | None = Field(default=None, ge=0)
    """For the calls of the model inside, in place of what is set there; as are the next two."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of a response at most."""
    stop: list[str] | None = None
    """Strings that end a response."""
    streaming: bool = False
    """Whether ``invoke`` tells handlers what ``stream`` would."""

    @model_validator(mode="after")
    def _set_model_profile(self) -> Self:
        """Stand in for the model inside; in place of LangChain's own step of this name, which would find no profile."""
        inside = chat_model_inside(self.sampled)
        if inside is None and not is_configurable(self.sampled) and not isinstance(self.sampled, Options):
            raise ConfigurationError(
                f"ChatReASC stands around a chat model, and there is none in {type(self.sampled).__name__}; give the "
                "chat model itself, or use ReASCRunnable, which takes any Runnable that returns an AIMessage"
            )
        # Handlers hear of this model alone, so what was set on the one inside is set here; not by assignment, which
        # would be kept when another model takes its place.
        if inside is not None:
            told = {
                **told_of(self.sampled),
                **{name: getattr(inside, name) for name in ("verbose", "cache", "profile")},
            }
            self.__dict__.update({name: value for name, value in told.items() if name not in self.model_fields_set})
        return self

    @property
    def model_name(self) -> str:
        """The name of the model inside."""
        inside = chat_model_inside(self.sampled)
        return "" if inside is None else name_of(inside)

    @property
    def _llm_type(self) -> str:
        return "reasc"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        inside = chat_model_inside(self.sampled)
        names = {*Options.model_fields, *StandIn.__annotations__, "when"} - {
            "model",
            "calibrator",
            "advised",
            "streaming",
        }
        options = {name: value for name in sorted(names) if (value := getattr(self, name, None)) is not None}
        told = {name: getattr(value, "__qualname__", None) or str(value) for name, value in options.items()}
        told["tool_votes"] = str(_plain_votes(self.tool_votes))
        if isinstance(self.calibration, Calibration):
            told["calibration"] = f"{self.calibration.summary()} ({self.calibration.created_at.isoformat()})"
        return {"model": {} if inside is None else {**inside._identifying_params, "_type": inside._llm_type}, **told}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        inside, arguments = chat_model_inside(self.sampled), {**self._arguments, **kwargs}
        stop = stop or arguments.pop("stop", None)
        return (inside._get_ls_params if inside else super()._get_ls_params)(stop=stop, **arguments)

    @property
    def _arguments(self) -> dict[str, Any]:
        """What is set here for the calls of the model inside."""
        given = {"temperature": self.temperature, "max_tokens": self.max_tokens, "stop": self.stop}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Whether LangChain can write it down: yes, where it can write its model and its options."""
        return True

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """Options that are records, as plain data."""
        plain: dict[str, Any] = {"tool_votes": _plain_votes(self.tool_votes)}
        if isinstance(self.calibration, Calibration):
            plain["calibration"] = self.calibration.model_dump(mode="json", by_alias=True)
        if self.measure is not None:
            plain["measure"] = asdict(self.measure)
        return plain

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of a text's tokens, as the model inside has them."""
        inside = chat_model_inside(self.sampled)
        return inside.get_token_ids(text) if inside else super().get_token_ids(text)

    def get_num_tokens(self, text: str) -> int:
        """The number of a text's tokens, as the model inside counts them."""
        inside = chat_model_inside(self.sampled)
        return inside.get_num_tokens(text) if inside else super().get_num_tokens(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """The number of tokens of messages, as the model inside counts them."""
        inside = chat_model_inside(self.sampled)
        return (
            inside.get_num_tokens_from_messages(messages, tools)
            if inside
            else super().get_num_tokens_from_messages(messages, tools)
        )


def _plain_votes(votes: ToolVotes) -> dict[str, Any]:
    """How calls are compared, as plain data but for functions."""
    excluded = votes.exclude_args
    if isinstance(excluded, Mapping):
        names: Any = {tool: sorted(one) for tool, one in excluded.items()}
    else:
        names = sorted(excluded)
    return {**asdict(votes), "exclude_args": names}
