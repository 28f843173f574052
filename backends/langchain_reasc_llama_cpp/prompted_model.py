"""The part of the chat model that turns messages and options into requests."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage

from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError
from langchain_reasc_llama_cpp.engine.request import GenerationRequest
from langchain_reasc_llama_cpp.engine.streams import MakeRequest
from langchain_reasc_llama_cpp.grammar.matchers import matchers
from langchain_reasc_llama_cpp.loaded_model import LoadedModel
from langchain_reasc_llama_cpp.messages import MessageMaker
from langchain_reasc_llama_cpp.options import CallOptions, checked_stop
from langchain_reasc_llama_cpp.prompts.conversation import template_messages
from langchain_reasc_llama_cpp.prompts.overflow import newest_turns
from langchain_reasc_llama_cpp.sampling.sampler import SEEDS
from langchain_reasc_llama_cpp.tools.response_shape import ResponseShape
from langchain_reasc_llama_cpp.tools.tools import Tools, openai_tools

__all__ = ["TRACED", "Call", "PromptedModel", "fresh_seed"]

TRACED: Final = "ls_structured_output_format"
"""What ``with_structured_output`` tells LangSmith; ``invoke`` and its like take it out of the arguments themselves."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What one call asks for beside its messages.

    Attributes:
        options: the options in force: the model's, with those of the call in their place.
        shape: what the response may be.
        maker: makes the call's messages.
    """

    options: CallOptions
    shape: ResponseShape
    maker: MessageMaker

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        """Definitions the model is shown."""
        return () if self.shape.tools is None else self.shape.tools.definitions


class PromptedModel(LoadedModel):
    """A loaded model that reads conversations."""

    def model_post_init(self, context: Any, /) -> None:
        """Load the model, and have the marks of its tool calls come out: some models have control tokens for them."""
        super().model_post_init(context)
        for mark in filter(None, (self._template.form.opening, self._template.form.closing)):
            self._engine.model.show(mark)

    def get_token_ids(self, text: str) -> list[int]:
        """Token ids of a text, by the model's own tokenizer, without a begin-of-sequence token."""
        self._engine.check_usable()
        return self._engine.model.tokenize(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Tokens of the prompt these messages make, the chat template's own and those of the tools included."""
        return len(self._prompt(messages, openai_tools(tools or ())))

    def _options(self, overrides: dict[str, Any] | None = None) -> CallOptions:
        return super()._options({name: value for name, value in (overrides or {}).items() if name != TRACED})

    def _call(self, overrides: dict[str, Any]) -> Call:
        """Check the arguments of a call.

        Raises:
            ConfigurationError: one is unknown or wrong, or two contradict each other.
        """
        options = self._options(overrides)
        tools = Tools.of(options.tools, options.tool_choice, options.parallel_tool_calls)
        shape = ResponseShape.of(self._template.form, tools, options.response_format, options.grammar)
        if shape.grammar is not None:
            matchers(shape.grammar, self._engine.model)  # here, so that the thread that decodes finds it made
        vocabulary = self._engine.model.vocabulary_size
        info = {"vocabulary_size": vocabulary, "top_k": min(options.top_k_signal, vocabulary)}
        return Call(options=options, shape=shape, maker=MessageMaker(self.model_name, info, shape.reader))

    def _request_for(
        self, messages: LanguageModelInput, stop: list[str] | None, call: Call, seed: int, *, stream: bool = False
    ) -> MakeRequest:
        """Everything about a request but where its events go. ``seed`` counts where the options leave it open."""
        options, metadata = call.options, self._engine.model.metadata
        stops = checked_stop(self.stop if stop is None else stop)
        prompt = self._fitting_prompt(messages, call)
        if not prompt:
            raise ConfigurationError("the messages make an empty prompt; say something")
        request: dict[str, Any] = {
            "prompt": np.array(prompt, dtype=np.int32),
            "samples": range(options.first, options.first + options.n),
            "seed": seed if options.seed is None else options.seed,
            "sampling": options.sampling(metadata),
            "max_tokens": options.limit(metadata, self._engine.n_ctx - len(prompt)),
            "stop": stops,
            "signals": options.signals,
            "top_k_signal": options.top_k_signal,
            "logprobs": options.alternatives,
            "grammar": call.shape.grammar,
            "sized": bool(options.signals),
            "stream": stream,
        }
        return lambda emit: GenerationRequest(emit=emit, **request)

    def _fitting_prompt(self, messages: LanguageModelInput, call: Call) -> list[int]:
        """The prompt, without its oldest turns where it is too long and the caller lets them go."""
        given = self._convert_input(messages).to_messages()
        prompt, size = self._prompt(given, call.tools), self._engine.n_ctx
        if call.options.on_overflow == "truncate":
            reserved = call.options.limit(self._engine.model.metadata, size // 4)
            for room in (size - reserved, size - 1):
                if len(prompt) > room and (kept := newest_turns(given, partial(self._fits, room, call))):
                    prompt, call.maker.dropped = self._prompt(kept, call.tools), len(given) - len(kept)
        if len(prompt) >= size:
            raise ContextOverflowError(
                f"the prompt has {len(prompt):,} tokens, but the context holds {size:,} and the response needs at "
                f"least one; shorten the prompt, or load the model with n_ctx={len(prompt) + 256} or more"
            )
        return prompt

    def _fits(self, room: int, call: Call, messages: list[BaseMessage]) -> bool:
        return len(self._prompt(messages, call.tools)) <= room

    def _prompt(self, messages: LanguageModelInput, tools: Sequence[dict[str, Any]] = ()) -> list[int]:
        self._engine.check_usable()
        text = self._template.render(template_messages(self._convert_input(messages).to_messages()), tools)
        model = self._engine.model
        if model.adds_bos and model.bos:
            text = text.removeprefix(model.bos)  # most templates write it, and the tokenizer would again
        return model.tokenize(text, add_special=True)


def fresh_seed() -> int:
    """A seed nobody chose."""
    return secrets.randbelow(SEEDS)
