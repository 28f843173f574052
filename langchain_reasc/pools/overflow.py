"""Questions that do not fit a model's context: every server says it in words of its own."""

import re
from collections.abc import Iterator

from langchain_core.exceptions import ContextOverflowError

__all__ = ["is_overflow"]

# OpenAI, vLLM, SGLang, llama.cpp, TGI, Anthropic, Gemini, Bedrock and Mistral, in this order.
_SAID = re.compile(
    r"context_length_exceeded|maximum context length|longer than the (?:model's context|maximum model) length|"
    r"exceeds? the (?:available )?context (?:size|window)|inputs` tokens \+ `max_new_tokens`|prompt is too long|"
    r"exceeds the maximum number of tokens allowed|input is too long for requested model|"
    r"too large for model with \d+ maximum context",
    re.IGNORECASE,
)


def is_overflow(error: BaseException) -> bool:
    """Whether a model refused a prompt because of its length, now and whenever it is asked again."""
    return any(_says_so(one) for one in _with_causes(error))


def _says_so(error: BaseException) -> bool:
    if isinstance(error, ContextOverflowError):  # LangChain's, and so ours
        return True
    status = getattr(error, "status_code", None)  # None in the middle of a stream
    return status == 413 or (status in (None, 400, 422) and bool(_SAID.search(str(error))))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or following.__context__
