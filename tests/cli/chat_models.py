"""Chat models that a command is told by the path of their class: scripted ones, for what a real one rarely does."""

import time
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field, SecretStr

OBEYED = "\x1b]52;c;aGk=\x07\x9b2J\u202e\x7f"
"""Sets the clipboard, clears the screen, and turns the direction of writing."""
_FAILED: set[int] = set()


def said(text: str, usage: Any) -> ChatResult:
    message = AIMessage(text, usage_metadata=usage, response_metadata={"finish_reason": "stop"})
    return ChatResult(generations=[ChatGeneration(message=message)])


class Scripted(BaseChatModel):
    """Says the same of every question; what that costs, and what goes wrong, is told by its fields."""

    model_name: str = Field(default="scripted-1", alias="model")
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    scripted_api_key: SecretStr | None = Field(default=None, alias="api_key")
    headers: dict[str, str] = Field(default_factory=dict)
    usage: bool = True
    fails_once: bool = False
    says_its_key: bool = False
    seconds: float = 0

    model_config = ConfigDict(populate_by_name=True)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_model_name": self.model_name}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        time.sleep(self.seconds)
        if self.says_its_key and self.scripted_api_key:
            raise ConnectionError(f"no such key: {self.scripted_api_key.get_secret_value()}")
        seed = kwargs.get("seed", 0)
        if self.fails_once and seed % 4 == 2 and seed not in _FAILED:
            _FAILED.add(seed)
            raise ConnectionError("the line is busy")
        told: Any = {"input_tokens": 20, "output_tokens": 8, "total_tokens": 28}
        return said("It is \\boxed{5}.", told if self.usage else None)


class Escaping(Scripted):
    """Says what a terminal would obey."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        usage: Any = {"input_tokens": 1, "output_tokens": 9, "total_tokens": 10}
        return said(f"So {OBEYED} \\boxed{{5{OBEYED}}}", usage)


class Silent(Scripted):
    """Says nothing."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return said("", {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})


class Unseeded(BaseChatModel):
    """Takes neither seed nor temperature, and cannot be made without ``size``."""

    size: int

    @property
    def _llm_type(self) -> str:
        return "unseeded"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        usage: Any = {"input_tokens": 1, "output_tokens": self.size, "total_tokens": 1 + self.size}
        return said("\\boxed{5}", usage)


class Fragile(Unseeded):
    """Finds fault with all that it is given, in words that quote it."""

    def __init__(self, **fields: Any) -> None:
        raise RuntimeError(f"cannot reach anybody with {fields}")


not_a_class = "text"
