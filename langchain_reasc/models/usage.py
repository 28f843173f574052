"""Token usage of a response: as reported, or estimated from all that was sent and
written.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, cast

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage

from langchain_reasc.answers import has_finish_reason
from langchain_reasc.models.contract import RECEIVED_TOKENS, USAGE_ESTIMATED
from langchain_reasc.models.signal_reading import listed_tokens

MOST_TOKENS: Final = 10**9
"""A usage with more tokens in a prompt or a response is not true."""
_BYTES: Final = 4  # of a text in a token, if nothing better is known
_MEDIA: Final = re.compile(
    rb'"type"\s*:\s*"(?:input_)?image[^}]*|(?<![\w+/=-])[\w+/=-]{1000,}'
)
"""An image, or anything else that is written in letters, such as a sound."""
_MEDIA_TOKENS: Final = 1000
_ASKED: Final = ("tools", "functions", "response_format")
"""Arguments of a call that the model reads beside the messages."""
_TEXTS: Final = (
    *("text", "thinking", "reasoning", "reasoning_content", "refusal"),
    *("content", "summary", "transcript", "executable_code"),
)
"""Where a content block has its text; the first that has any is taken."""
_REPEATED: Final = ("parsed", "reasoning_details")
"""What says again, beside the content, what stands elsewhere."""

_NO_TOKENS: Final = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)


def reported_usage(message: AIMessage | None) -> UsageMetadata | None:
    """Return the usage that came with a response if it can be true: numbers of tokens,
    and some for a text.

    Details that cannot be true are left out.
    """
    if message is None or not message.usage_metadata:
        return None
    usage: dict[str, Any] = {**message.usage_metadata}
    prompt = usage.get("input_tokens")
    output = usage.get("output_tokens")
    if not is_count(prompt) or not is_count(output):
        return None
    # A text cannot have cost nothing.
    if output == 0 and written(message):
        return None
    # Some servers leave out the sum.
    if not is_count(usage.get("total_tokens")):
        usage["total_tokens"] = prompt + output
    for name in ("input_token_details", "output_token_details"):
        if name in usage:
            details = usage[name] or {}
            usage[name] = {kind: n for kind, n in details.items() if is_count(n)}
    return cast(UsageMetadata, usage)


def is_count(value: object) -> TypeGuard[int]:
    """Return whether a value can be the number of tokens of a prompt or a response."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value <= MOST_TOKENS
    )


def counted_tokens(message: AIMessage) -> int:
    """Return the tokens of a response, counted from what arrived."""
    received = message.response_metadata.get(RECEIVED_TOKENS)
    if received:
        return int(received)
    return tokens_written([(message, message.response_metadata)])


def tokens_written(parts: Iterable[tuple[BaseMessage, Mapping[str, Any]]]) -> int:
    """Return about how many tokens a response, or its chunks, has.

    Count those with log-probabilities, and one for four bytes of the rest.
    """
    tokens = rest = 0
    for index, (message, metadata) in enumerate(parts):
        listed, spelled = listed_tokens(metadata)
        size = len(written(message).encode(errors="replace"))
        says_something = (
            size
            or listed
            or getattr(message, "usage_metadata", None)
            or getattr(message, "chunk_position", None)
        )
        tokens += listed
        # ChatOpenAI drops the reasoning that servers stream, and leaves empty chunks.
        if index > 0 and not says_something and not has_finish_reason(metadata):
            tokens += 1
        # The listed tokens may be only some of all.
        rest += size - spelled
    return tokens + tokens_of_text(max(0, rest))


def tokens_of_text(size: int) -> int:
    """Return about how many tokens a text of so many bytes has."""
    return -(-size // _BYTES)


def estimated_tokens(document: bytes) -> int:
    """Return about how many tokens a JSON document has: one for four bytes, and 1,000
    for an image or a sound in it.
    """
    words, media = _MEDIA.subn(b"", document)
    return tokens_of_text(len(words)) + media * _MEDIA_TOKENS


def estimated_prompt(
    messages: Sequence[BaseMessage], arguments: Mapping[str, Any]
) -> int:
    """Return about how many tokens a prompt has, with the tools and the schema in the
    arguments of its call.
    """
    fields = ("type", "content", "name", "tool_calls", "tool_call_id")
    sent: list[Any] = []
    for message in messages:
        values = {name: getattr(message, name, None) for name in fields}
        sent.append({name: value for name, value in values.items() if value})
    sent += filter(None, map(arguments.get, _ASKED))
    return estimated_tokens(_as_json(sent).encode(errors="replace"))


def estimated_usage(message: AIMessage, *, prompt_tokens: int) -> UsageMetadata:
    """Return an estimate of the usage of a response that came without one, after a
    prompt of so many tokens.
    """
    output = counted_tokens(message)
    return UsageMetadata(
        input_tokens=prompt_tokens,
        output_tokens=output,
        total_tokens=prompt_tokens + output,
    )


def output_tokens(message: AIMessage | None) -> int:
    """Return the tokens generated for a message, as reported, or else as counted."""
    if message is None:
        return 0
    usage = reported_usage(message)
    if usage is None:
        return counted_tokens(message)
    return usage["output_tokens"]


def is_estimated(message: AIMessage) -> bool:
    """Return whether the provider never said what the response cost."""
    return reported_usage(message) is None or bool(
        message.response_metadata.get(USAGE_ESTIMATED)
    )


def written(message: BaseMessage) -> str:
    """Return all that the model wrote in a message or a chunk: text, reasoning,
    refusal, calls of tools.
    """
    content = message.content
    beside = message.additional_kwargs
    # A chunk has pieces of calls, a message whole ones.
    calls: list[Any] = getattr(message, "tool_call_chunks", None) or [
        *getattr(message, "tool_calls", ()),
        *getattr(message, "invalid_tool_calls", ()),
    ]
    if isinstance(content, str) and not (beside or calls):
        return content
    # OpenAI's older API calls one function.
    legacy = beside.get("function_call")
    if not calls and isinstance(legacy, Mapping):
        calls = [{"name": legacy.get("name"), "args": legacy.get("arguments")}]
    texts = [_text_of(value) for name, value in beside.items() if name not in _REPEATED]
    # OpenRouter gives the same reasoning as a text and in details.
    if not any(texts):
        texts.append(_text_of(beside.get("reasoning_details")))
    texts.insert(0, _text_of(content))
    for call in calls:
        arguments = call.get("args") or ""
        if not isinstance(arguments, str):
            arguments = _as_json(arguments)
        texts += [str(call.get("name") or ""), arguments]
    return "".join(texts)


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_text_of, value))
    if isinstance(value, Mapping):
        for name in _TEXTS:
            text = _text_of(value.get(name))
            if text:
                return text
    return ""


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens paid for one question, over all its samples.

    Attributes:
        bill: the sum as LangChain has it: prompt tokens as often as the model was given
            the prompt, generated tokens of unused and cancelled samples too, and of
            both the details that providers report (cached, reasoning, audio).
        unused_output_tokens: generated tokens of samples that the decision does not
            rest on.
        estimated: whether some sample, or the judge, came without usage and its tokens
            were counted from what arrived.
        judge: the tokens of a judge that compares answers; not part of the bill, since
            the judge is another model. None without a judge.
    """

    bill: UsageMetadata
    unused_output_tokens: int = 0
    estimated: bool = False
    judge: UsageMetadata | None = None

    @classmethod
    def add_up(
        cls,
        used: Sequence[AIMessage],
        unused: Sequence[AIMessage] = (),
        *,
        judged: Sequence[tuple[str, AIMessage]] | None = None,
        prompt_tokens: Callable[[], int] = lambda: 0,
    ) -> "Usage":
        """Add up what a question cost.

        Args:
            used: the responses that the decision rests on.
            unused: all other responses, whole or not.
            judged: the prompts of a judge, and its replies; None without a judge.
            prompt_tokens: estimates the tokens of the prompt if no response reports
                them.
        """
        messages = [*used, *unused]
        reported = [reported_usage(message) for message in messages]
        # All had the same prompt, so one without usage cost what the others did.
        prompt = max((usage["input_tokens"] for usage in reported if usage), default=0)
        if not prompt and None in reported:
            prompt = prompt_tokens()
        bill = _NO_TOKENS
        unused_output_tokens = 0
        for index, message in enumerate(messages):
            usage = reported[index] or estimated_usage(message, prompt_tokens=prompt)
            bill = add_usage(bill, usage)
            if index >= len(used):
                unused_output_tokens += usage["output_tokens"]
        judge = None
        if judged is not None:
            judge = _NO_TOKENS
            for question, reply in judged:
                question_tokens = estimated_tokens(question.encode(errors="replace"))
                judge = add_usage(judge, usage_of(reply, question_tokens))
                messages.append(reply)
        estimated = any(map(is_estimated, messages))
        return cls(bill, unused_output_tokens, estimated=estimated, judge=judge)

    @classmethod
    def of_two_models(cls, winner: "Usage", others: Sequence["Usage"]) -> "Usage":
        """Add up what a question cost with two models. The answer rests on the winner's
        responses alone.
        """
        bill = winner.bill
        judge = winner.judge
        unused = winner.unused_output_tokens
        for usage in others:
            bill = add_usage(bill, usage.bill)
            unused += usage.output_tokens
            if usage.judge is not None:
                judge = add_usage(judge, usage.judge)
        estimated = any(usage.estimated for usage in [winner, *others])
        return cls(bill, unused, estimated=estimated, judge=judge)

    @property
    def input_tokens(self) -> int:
        """Prompt tokens."""
        return self.bill["input_tokens"]

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed again (a shared prefill)."""
        return self.bill.get("input_token_details", {}).get("cache_read", 0)

    @property
    def output_tokens(self) -> int:
        """Generated tokens."""
        return self.bill["output_tokens"]

    @property
    def total_tokens(self) -> int:
        """All tokens, those of a judge too."""
        total = self.bill["total_tokens"]
        if self.judge is not None:
            total += self.judge["total_tokens"]
        return total

    @property
    def account(self) -> dict[str, Any]:
        """What the account of a decision says of it."""
        account: dict[str, Any] = {
            "input": self.bill["input_tokens"],
            "output": self.bill["output_tokens"],
            "unused_output": self.unused_output_tokens,
            "estimated": self.estimated,
        }
        if self.judge is not None:
            account["judge"] = {
                "input": self.judge["input_tokens"],
                "output": self.judge["output_tokens"],
            }
        return account


def usage_of(message: AIMessage, prompt_tokens: int) -> UsageMetadata:
    """Return the usage of a response, estimated after a prompt of so many tokens if it
    came without one.
    """
    usage = reported_usage(message)
    if usage is not None:
        return usage
    return estimated_usage(message, prompt_tokens=prompt_tokens)
