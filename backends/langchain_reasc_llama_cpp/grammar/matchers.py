"""Grammars made ready for a model's vocabulary by llguidance, each once."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc_llama_cpp.grammar.gbnf import lark_of
from langchain_reasc_llama_cpp.grammar.grammar import Grammar
from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["guidance", "matchers", "on_deep_stack"]

_MOST_KEPT: Final = 64
_STACK: Final = 128 << 20  # bytes of addresses; memory is used as far as the stack grows
_starting: Final = threading.Lock()
T = TypeVar("T")
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


def on_deep_stack(work: Callable[[], T]) -> T:
    """Call a function in a thread with a deep stack, and give what it gives.

    llguidance recurses along the references of a grammar, some 10 KB at each step, and a stack that overflows ends the
    process. The caller's may be anything: 8 MB, 1 MB on Windows, less in a thread.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # a panic in Rust is no Exception
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="grammar", daemon=True)
    with _starting:
        before = threading.stack_size(_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return outcome.result()


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
            known.made[grammar] = on_deep_stack(lambda: _made(grammar, model, known.tokenizer))
        return known.made[grammar], known.tokenizer


def _made(grammar: Grammar, model: NativeModel, tokenizer: Any) -> list[Any]:
    texts = grammar.lark
    if grammar.gbnf is not None:
        texts = (lark_of(grammar.gbnf, root=grammar.root, tokenize=model.tokenize, ends=tokenizer.eos_tokens),)
    return [_matcher(tokenizer, text) for text in texts]


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
