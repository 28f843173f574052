"""Keep the texts of messages and tools from being read as marks of the chat template.

llama.cpp reads a control token wherever its text stands in a prompt, so a quoted
``<|im_end|>`` would end the message that quotes it (llama.cpp #24382, transformers
#29279). Here each mark in a text is replaced by a placeholder before the template is
rendered, and spelled out in ordinary tokens afterwards.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from langchain_reasc_llama_cpp.prompts.conversation import TemplateMessage

PLACEHOLDER_SIGNS: Final = ("\ufdd0", "\ufdd1")
"""Unicode's noncharacters. Where a text has one, it is hidden like a mark, so that no
text can forge a placeholder.
"""
_BEGIN, _END = PLACEHOLDER_SIGNS
_PLACEHOLDER: Final = re.compile(f"{_BEGIN}([0-9]+){_END}")
_TAG: Final = re.compile(r"<.+>|\[.+\]", re.DOTALL)
_NUMBER: Final = re.compile("[0-9]+(?=[^0-9])")


class TemplateMarks:
    """The texts that only the chat template may write as single tokens: hides them in
    messages, and tokenizes prompts.

    These are all control tokens. llama.cpp parses user-defined tokens in any text, and
    they may be as ordinary as a run of spaces or ``<code>``. Those of them that the
    template writes as tags, such as ``<tool_response>``, are marks too, except in the
    assistant's own messages, where the model wrote them.
    """

    def __init__(
        self, template: str, *, control: Iterable[str], user_defined: Iterable[str]
    ) -> None:
        """Prepare the search for marks.

        Args:
            template: the source of the chat template.
            control: texts of the model's control tokens.
            user_defined: texts of its user-defined tokens.
        """
        # llama.cpp looks for the longest first
        control = sorted(control, key=len, reverse=True)
        tags = [
            text for text in user_defined if _TAG.fullmatch(text) and text in template
        ]
        self._tags = frozenset(tags)
        self._texts = [*PLACEHOLDER_SIGNS, *control, *tags]
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._control = re.compile(f"({_any_of(control)})")
        self._in_assistant = re.compile(_any_of([*PLACEHOLDER_SIGNS, *control]))
        self._anywhere = re.compile(
            _any_of(sorted(self._numbers, key=len, reverse=True))
        )

    def hide(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]]
    ) -> tuple[list[TemplateMessage], list[dict[str, Any]]]:
        """Return messages and tools with placeholders for the marks in their texts.
        This costs a scan of the texts.
        """
        hidden = []
        for message in messages:
            shown = self._without_marks(message, self._anywhere)
            if message["role"] == "assistant":
                shown["content"] = self._without_marks(
                    message["content"], self._in_assistant
                )
            hidden.append(shown)
        return hidden, [self._without_marks(tool, self._anywhere) for tool in tools]

    def tokens(self, prompt: str, tokenize: Callable[..., list[int]]) -> list[int]:
        """Return the tokens of a rendered prompt.

        Args:
            prompt: what the template made of the hidden messages.
            tokenize: :meth:`NativeModel.tokenize`.
        """
        if _BEGIN not in prompt:
            return tokenize(prompt, add_special=True)
        tokens: list[int] = []
        # llama.cpp tokenizes the text between two control tokens by itself. So the
        # borders change no token.
        parts = self._control.split(prompt)
        for number, (has_placeholder, group) in enumerate(
            groupby(parts, lambda part: _BEGIN in part)
        ):
            text = "".join(group)
            for piece in self._spelled_out(text) if has_placeholder else [text]:
                tokens += tokenize(
                    piece,
                    add_special=not number and not tokens,
                    parse_special=not has_placeholder,
                )
        return tokens

    def _spelled_out(self, text: str) -> list[str]:
        """Return a text with its marks, in pieces to be tokenized one by one."""
        pieces = [""]
        for number, part in enumerate(_PLACEHOLDER.split(text)):
            mark = self._texts[int(part)] if number % 2 else ""
            if (
                mark in self._tags
                # llama.cpp reads user-defined tokens in every text, unless the text is cut
            ):
                pieces[-1] += mark[0]
                pieces.append(mark[1:])
            else:
                pieces[-1] += mark or part
        return pieces

    def _without_marks(self, value: Any, marks: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            return marks.sub(self._placeholder, value)
        if isinstance(value, dict):
            pairs = value.items()
            return {
                self._without_marks(key, marks): self._without_marks(item, marks)
                for key, item in pairs
            }
        if isinstance(value, list | tuple):
            return [self._without_marks(item, marks) for item in value]
        return value

    def _placeholder(self, match: re.Match[str]) -> str:
        number = self._numbers.get(match[0])
        return match[0] if number is None else f"{_BEGIN}{number}{_END}"


def _any_of(texts: Sequence[str]) -> str:
    """Return a pattern for these texts and others that differ in a number: Gemma has
    <unused0> to <unused6241>.
    """
    patterns = dict.fromkeys(_NUMBER.sub("[0-9]+", re.escape(text)) for text in texts)
    return "|".join(patterns) or "(?!)"
