"""Grammars made ready for a model's vocabulary by llguidance, each once."""

import threading
from typing import Any, Final
from weakref import WeakKeyDictionary

from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc_llama_cpp.grammar.gbnf import lark_of
from langchain_reasc_llama_cpp.grammar.grammar import Grammar
from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["guidance", "matchers"]

_MOST_KEPT: Final = 64
_making: Final = threading.Lock()


class _Known:
    """What was made for one model: llguidance's view of its tokens, and the matchers of each grammar."""

    def __init__(self, model: NativeModel) -> None:
        self.tokenizer: Any = _tokenizer(model)
        self.made: dict[Grammar, list[Any]] = {}


_KNOWN: Final[WeakKeyDictionary[NativeModel, _Known]] = WeakKeyDictionary()


def guidance() -> Any:
    """The ``llguidance`` module.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import llguidance
    except ImportError as error:
        raise missing_extra("llama-cpp", "llguidance") from error
    return llguidance


def matchers(grammar: Grammar, model: NativeModel) -> tuple[list[Any], Any]:
    """A grammar's matchers, to be copied for each response, and the tokenizer they are for. Safe from any thread.

    A model's first takes about a second for a vocabulary of 150,000; whoever makes a request does it, so that the
    thread that decodes need not.

    Raises:
        ConfigurationError: the grammar is malformed, or no text keeps to it.
        ModelClosedError: the model was closed.
        MissingExtraError: llguidance is not installed.
    """
    with _making:
        if model not in _KNOWN:
            _KNOWN[model] = _Known(model)
        known = _KNOWN[model]
        if grammar not in known.made:
            if len(known.made) >= _MOST_KEPT:
                known.made.clear()
            texts = grammar.lark
            if grammar.gbnf is not None:
                ends = known.tokenizer.eos_tokens
                texts = (lark_of(grammar.gbnf, root=grammar.root, tokenize=model.tokenize, ends=ends),)
            known.made[grammar] = [_matcher(known.tokenizer, text) for text in texts]
        return known.made[grammar], known.tokenizer


def _matcher(tokenizer: Any, text: str) -> Any:
    """What keeps to a grammar in llguidance's notation, at its beginning."""
    llguidance = guidance()
    limits = llguidance.LLParserLimits(verbose_errors=False)
    matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # finds out whether there is a way to begin
    if matcher.is_stopped() and not matcher.is_accepting():
        why = matcher.get_error().split("\n")[0] or "no text keeps to it"
        raise ConfigurationError(f"the grammar cannot be used: {why}")
    return matcher


class _Vocabulary:
    """A model's tokens, as llguidance asks for them."""

    def __init__(self, model: NativeModel) -> None:
        pieces = model.pieces()
        ends = [token for token, (_, ends) in enumerate(pieces) if ends]
        self.tokens = [piece or model.written(token) for token, (piece, _) in enumerate(pieces)]
        self.special_token_ids = [token for token, (piece, _) in enumerate(pieces) if not piece]
        if not ends:  # a token to end with that is never drawn
            ends = [len(pieces)]
            self.tokens.append(b"<end>")
            self.special_token_ids += ends
        self.eos_token_id, self.eos_token_ids = ends[0], ends
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        raise NotImplementedError("only the forcing of tokens would ask, which every grammar here switches off")


def _tokenizer(model: NativeModel) -> Any:
    llguidance, vocabulary = guidance(), _Vocabulary(model)
    wrapper = llguidance.TokenizerWrapper(vocabulary)
    made = llguidance.LLTokenizer(wrapper, eos_token=vocabulary.eos_token_ids)
    wrapper.tokens = vocabulary.tokens = []  # llguidance has its own copy, and keeps the wrapper
    return made
