"""A made-up byte-level BPE vocabulary of any size, so that tokenizers and chat templates work without downloads."""

import string
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

import gguf

__all__ = ["CHATML", "Vocabulary", "make_vocabulary"]

CHATML: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CONTROL: Final = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_RESERVED: Final = 293  # ids at the end that Qwen2.5 keeps for control tokens and padding
_STRIDE: Final = 37  # coprime to 26², so that a part of all four-letter tokens is spread over the alphabet


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens as a GGUF stores them.

    Attributes:
        tokens: V texts in GPT-2's printable alphabet.
        kinds: their V types.
        merges: how pairs make longer tokens, the most wanted first.
        ordinary: how many tokens from the first on are text; the rest is control tokens and padding.
        end: id of the token that ends a message.
    """

    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    ordinary: int
    end: int


def make_vocabulary(size: int) -> Vocabulary:
    """At least 262 tokens: the bytes, then 2 to 4 letters, each merged from two earlier ones."""
    reserved = _RESERVED if size > 4 * _RESERVED else len(_CONTROL)
    ordinary, unused = size - reserved, reserved - len(_CONTROL)
    alphabet = _byte_alphabet()
    pairs = list(islice(_merges(alphabet[ord(" ")]), ordinary - len(alphabet)))
    normal, control, padding = map(int, (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.UNUSED))
    return Vocabulary(
        tokens=[*alphabet, *map("".join, pairs), *_CONTROL, *(f"<|unused_{i}|>" for i in range(unused))],
        kinds=[normal] * ordinary + [control] * len(_CONTROL) + [padding] * unused,
        merges=list(map(" ".join, pairs)),
        ordinary=ordinary,
        end=ordinary + _CONTROL.index("<|im_end|>"),
    )


def _merges(space: str) -> Iterator[tuple[str, str]]:
    letters = string.ascii_lowercase
    two = list(map("".join, product(letters, letters)))
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
