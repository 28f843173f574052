"""Cutting off a chat model in the middle of a response, so that its run ends in good order.

LangChain ends the run of a stream that is closed early as an error without usage, and never that of an ``ainvoke`` that
is cancelled. Here it is the model's own stream that ends: with one more chunk, which says that the response was cut off
and what it cost as far as can be told. What LangChain makes of the chunks is then a whole run of a short response.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_reasc.answers import says_how_it_ended
from langchain_reasc.models.bound import ResponseBound, abounded, bounded, token_limit
from langchain_reasc.models.contract import CANCELLED, FINISH_REASON, USAGE_ESTIMATED
from langchain_reasc.models.cutoff import CUTOFF, Cutoff, aread, read
from langchain_reasc.models.logprobs import count_tokens
from langchain_reasc.models.usage import tokens_of_text

__all__ = ["cuttable", "is_cuttable"]

if TYPE_CHECKING:
    from langchain_reasc.models.refusal import AskedLogprobs

_ASKED: Final = "_asked_logprobs"
ModelT = TypeVar("ModelT", bound=BaseChatModel)


def cuttable(model: ModelT, asked: "AskedLogprobs | None" = None) -> ModelT:
    """Let a model end its responses when the :data:`~langchain_reasc.models.cutoff.CUTOFF` of the context says so.

    Args:
        model: a copy of the user's; it is changed.
        asked: how it asks for logprobs, in case its server refuses; None: as what it is a copy of.
    """
    asked = asked or model.__dict__.get(_ASKED)
    object.__setattr__(model, _ASKED, asked)
    for name, wrapper in _WRAPPERS.items():
        method = asked.wrapped(name, model) if asked else getattr(type(model), name).__get__(model)
        # On the instance: its class stays what it was, for registries and `isinstance`.
        object.__setattr__(model, name, wrapper(model, method))
    # LangChain's bridge for `stream_events(version="v3")` overwrites what earlier chunks said of their tokens.
    object.__setattr__(model, "_should_use_protocol_streaming", lambda **_: False)
    return model


def is_cuttable(model: BaseChatModel) -> bool:
    """Whether that was done; a copy's methods are still those of what it was copied from, and need it anew."""
    return "_stream" in model.__dict__


def _streaming(reader: Any, within: Any) -> Any:
    """Wraps ``_stream`` (read by :func:`read`) or ``_astream`` (by :func:`aread`), and holds it ``within`` a bound."""

    def wrapper(model: BaseChatModel, original: Any) -> Any:
        @wraps(original)
        def stream(messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
            chunks, cutoff = original(messages, *args, **kwargs), CUTOFF.get()
            if cutoff is None:
                return chunks
            ending, bound = _Ending(model, messages, cutoff), ResponseBound(token_limit(model, kwargs))
            return reader(within(chunks, bound, ending.at_limit), cutoff, ending.chunk)

        return stream

    return wrapper


def _generate(model: BaseChatModel, original: Any) -> Any:
    @wraps(original)
    def generate(messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        cutoff = CUTOFF.get()
        if cutoff is None:
            return cast(ChatResult, original(messages, *args, **kwargs))

        def once() -> Iterator[ChatResult]:
            yield original(messages, *args, **kwargs)

        with closing(read(once(), cutoff, _Ending(model, messages, cutoff).result, whole=True)) as results:
            return next(results)

    return generate


def _agenerate(model: BaseChatModel, original: Any) -> Any:
    @wraps(original)
    async def agenerate(messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        cutoff = CUTOFF.get()
        if cutoff is None:
            return cast(ChatResult, await original(messages, *args, **kwargs))

        async def once() -> AsyncIterator[ChatResult]:
            yield await original(messages, *args, **kwargs)

        async with aclosing(aread(once(), cutoff, _Ending(model, messages, cutoff).result, whole=True)) as results:
            return await anext(results)

    return agenerate


class _Ending:
    """How a response ends that was cut off."""

    def __init__(self, model: BaseChatModel, messages: list[BaseMessage], cutoff: Cutoff) -> None:
        self._model, self._messages, self._cutoff = model, messages, cutoff

    def at_limit(self, before: list[ChatGenerationChunk]) -> ChatGenerationChunk:
        """The last chunk of a stream that has gone past its limit of tokens."""
        return self.chunk(before, "length")

    def chunk(self, before: list[ChatGenerationChunk], reason: str = CANCELLED) -> ChatGenerationChunk:
        """The last chunk of a stream: why it ended, and the usage that has not come."""
        told = [{**(chunk.generation_info or {}), **chunk.message.response_metadata} for chunk in before]
        if any(map(says_how_it_ended, told)):  # it had ended, and only its usage was to come
            ended: dict[str, Any] = {}
        else:
            ended = {FINISH_REASON: reason, **self._model_name(told)}
        missing = self._missing_usage(before, told, ended)
        in_blocks = bool(before) and not isinstance(before[-1].message.content, str)
        return ChatGenerationChunk(
            message=AIMessageChunk(content=[] if in_blocks else "", usage_metadata=missing, chunk_position="last"),
            generation_info=ended | ({USAGE_ESTIMATED: True} if missing else {}),
        )

    def result(self, _: object) -> ChatResult:
        """What stands in place of a whole response of which nothing has come."""
        chunk = self.chunk([])
        message = AIMessage(content="", usage_metadata=chunk.message.usage_metadata)  # type: ignore[attr-defined]
        return ChatResult(generations=[ChatGeneration(message=message, generation_info=chunk.generation_info)])

    def _model_name(self, told: list[dict[str, Any]]) -> dict[str, str]:
        """The model's name, by which LangChain's handlers count usage; most models tell it with their last chunk."""
        name = self._model._get_ls_params().get("ls_model_name")
        return {"model_name": name} if name and not any("model_name" in one for one in told) else {}

    def _missing_usage(
        self, before: list[ChatGenerationChunk], told: list[dict[str, Any]], ended: dict[str, Any]
    ) -> UsageMetadata | None:
        """What is to be added to the usage that has come: some models tell of the prompt first, most only at last."""
        come: UsageMetadata | None = None
        for chunk in before:
            if (usage := getattr(chunk.message, "usage_metadata", None)) is not None:
                come = add_usage(come, usage)
        if come and not ended:
            return None
        prompt = 0 if come and come["input_tokens"] else self._prompt_tokens()
        counted = sum(map(count_tokens, told)) or tokens_of_text(sum(len(chunk.text) for chunk in before))
        output = max(0, counted - (come["output_tokens"] if come else 0))
        return UsageMetadata(input_tokens=prompt, output_tokens=output, total_tokens=prompt + output)

    def _prompt_tokens(self) -> int:
        """What another sample of the same prompt has told, or what LangChain estimates."""
        return self._cutoff.prompt_tokens or count_tokens_approximately(self._messages)


_WRAPPERS: Final = {
    "_stream": _streaming(read, bounded),
    "_astream": _streaming(aread, abounded),
    "_generate": _generate,
    "_agenerate": _agenerate,
}
