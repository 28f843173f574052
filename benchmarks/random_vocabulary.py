"""A made-up byte-level BPE vocabulary of any size, so that tokenizers and chat templates work without downloads."""

import string
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import gguf

__all__ = ["CHATML", "END", "START", "Vocabulary", "make_vocabulary"]

START, END, PADDING = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_RESERVED = 293  # ids at the end that Qwen2.5 keeps for control tokens and padding
_STRIDE = 37  # coprime to 26², so that a part of all four-letter tokens is spread over the alphabet


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens as a GGUF stores them.

    Attributes:
        tokens: V texts in GPT-2's printable alphabet.
        kinds: their V types.
        merges: how pairs make longer tokens, the most wanted first.
        ordinary: how many tokens from the first on are text; the rest is control tokens and padding.
    """

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    ordinary: int

    @property
    def end(self) -> int:
        """Id of the token that ends a message."""
        return self.tokens.index(END, self.ordinary)


def make_vocabulary(size: int) -> Vocabulary:
    """A vocabulary of ``size`` tokens: the bytes, then 2 to 4 letters, each merged from two earlier ones.

    Args:
        size: V, at least 262.

    Raises:
        ValueError: too small for the bytes and the control tokens, or larger than the letters allow.
    """
    reserved = _RESERVED if size > 4 * _RESERVED else 3
    alphabet = _byte_alphabet()
    wanted = size - reserved - len(alphabet)
    if wanted < 3:
        raise ValueError(f"a vocabulary needs 262 tokens or more, got {size}")
    pairs = list(islice(_merges(alphabet[ord(" ")]), wanted))
    if len(pairs) < wanted:
        raise ValueError(f"there are {size - wanted + len(pairs):,} tokens at most, got {size:,}")
    control = [PADDING, START, END, *(f"<|unused_{i}|>" for i in range(reserved - 3))]
    ordinary = size - reserved
    return Vocabulary(
        tokens=[*alphabet, *(left + right for left, right in pairs), *control],
        kinds=[gguf.TokenType.NORMAL] * ordinary
        + [gguf.TokenType.CONTROL] * 3
        + [gguf.TokenType.UNUSED] * (reserved - 3),
        merges=[f"{left} {right}" for left, right in pairs],
        ordinary=ordinary,
    )


def _merges(space: str) -> Iterator[tuple[str, str]]:
    letters = string.ascii_lowercase
    two = [left + right for left, right in product(letters, letters)]
    yield from product(letters, letters)
    yield from ((space, letter) for letter in letters)
    yield from product(two, letters)
    yield from ((space + first, second) for first, second in product(letters, letters))
    count = len(two) ** 2
    for i in range(count):
        left, right = divmod(i * _STRIDE % count, len(two))
        yield two[left], two[right]


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
