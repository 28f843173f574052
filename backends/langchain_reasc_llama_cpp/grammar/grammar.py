"""Constrain responses token by token by a grammar, with llguidance."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError, ModelError, missing_extra
from langchain_reasc_llama_cpp.grammar.gbnf import lark_of
from langchain_reasc_llama_cpp.native.model import NativeModel

NO_FORCING: Final = '%llguidance {"no_forcing": true}\n'
"""The first line of a grammar. Without it, llguidance allows only one tokenization of
fixed text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Rules that every token of a response must follow.

    Attributes:
        gbnf: a user's rules in llama.cpp's notation, or None if ``lark`` has the rules.
        root: the first rule of ``gbnf``.
        lark: grammars in llguidance's notation. A response must follow all of them.
        triggers: texts that activate the grammar from their first byte on. If empty,
            the grammar holds from the first token.
    """

    gbnf: str | None = None
    root: str = "root"
    lark: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()


_MOST_KEPT: Final = 64
_LONGEST_TOKEN: Final = 1024  # bytes; llguidance panics at a longer one
# bytes of addresses; memory is used as far as the stack grows
_STACK: Final = 128 << 20
_starting: Final = threading.Lock()
T = TypeVar("T")
_preparing: Final = threading.Lock()


class _PreparedModel:
    """The prepared objects of one model: llguidance's tokenizer, and the matchers of
    each grammar.
    """

    def __init__(self, model: NativeModel) -> None:
        self.tokenizer: Any = _tokenizer(model)
        self.matchers: dict[Grammar, list[Any]] = {}


_PREPARED: Final[WeakKeyDictionary[NativeModel, _PreparedModel]] = WeakKeyDictionary()


def guidance() -> Any:
    """Return the ``llguidance`` module.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import llguidance
    except ImportError as error:
        raise missing_extra("llama-cpp", "llguidance") from error
    return llguidance


def on_deep_stack(work: Callable[[], T]) -> T:
    """Call a function in a thread with a deep stack, and return its result.

    llguidance recurses along the references of a grammar, with some 10 KB for each
    step, and a stack overflow ends the process. The caller's stack may have 8 MB, 1 MB
    on Windows, or less in a thread.
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


def prepare_grammar(grammar: Grammar, model: NativeModel) -> tuple[list[Any], Any]:
    """Return a grammar's matchers, to be copied for each response, and their tokenizer.
    Any thread may call this.

    The first call for a model takes about a second with 150,000 tokens. It happens in
    the thread of the request, not in the thread that decodes.

    Raises:
        ConfigurationError: the grammar is malformed, or no text follows it.
        ModelClosedError: the model was closed.
        MissingExtraError: llguidance is not installed.
    """
    with _preparing:
        if model not in _PREPARED:
            _PREPARED[model] = _PreparedModel(model)
        prepared = _PREPARED[model]
        if grammar not in prepared.matchers:
            if len(prepared.matchers) >= _MOST_KEPT:
                prepared.matchers.clear()
            prepared.matchers[grammar] = on_deep_stack(
                lambda: _matchers(grammar, model, prepared.tokenizer)
            )
        return prepared.matchers[grammar], prepared.tokenizer


def _matchers(grammar: Grammar, model: NativeModel, tokenizer: Any) -> list[Any]:
    texts = grammar.lark
    if grammar.gbnf is not None:
        rules = lark_of(
            grammar.gbnf,
            root=grammar.root,
            tokenize=model.tokenize,
            ends=tokenizer.eos_tokens,
        )
        texts = (NO_FORCING + rules,)
    return [_matcher(tokenizer, text) for text in texts]


def _matcher(tokenizer: Any, text: str) -> Any:
    """Make a matcher for a grammar in llguidance's notation, at the beginning of the
    text.
    """
    llguidance = guidance()
    limits = llguidance.LLParserLimits(verbose_errors=False)
    matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()  # finds out whether there is a way to begin
    if matcher.is_stopped() and not matcher.is_accepting():
        why = matcher.get_error().split("\n")[0] or "no text can follow it"
        raise ConfigurationError(f"the grammar cannot be used: {why}")
    return matcher


class _Vocabulary:
    """A model's tokens in the form that llguidance needs."""

    def __init__(self, model: NativeModel) -> None:
        pieces = model.pieces()
        ends = [token for token, (_, ends) in enumerate(pieces) if ends]
        self.tokens = [
            piece or model.written(token) for token, (piece, _) in enumerate(pieces)
        ]
        for token, (piece, _) in enumerate(pieces):
            # llguidance puts a byte before a control token
            most = _LONGEST_TOKEN if piece else _LONGEST_TOKEN - 1
            if len(self.tokens[token]) > most:
                raise ConfigurationError(
                    f"{model.path.name} cannot follow a grammar, and so has no tools "
                    f"or structured output: its token {token} has "
                    f"{len(self.tokens[token]):,} bytes, and llguidance takes at most "
                    f"{most:,}"
                )
        self.special_token_ids = [
            token for token, (piece, _) in enumerate(pieces) if not piece
        ]
        if not ends:  # a token to end with that is never drawn
            ends = [len(pieces)]
            self.tokens.append(b"<end>")
            self.special_token_ids += ends
        self.eos_token_id, self.eos_token_ids = ends[0], ends
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        raise NotImplementedError(
            "only the forcing of tokens would ask, which every grammar here switches "
            "off"
        )


def _tokenizer(model: NativeModel) -> Any:
    llguidance, vocabulary = guidance(), _Vocabulary(model)
    wrapper = llguidance.TokenizerWrapper(vocabulary)
    made = llguidance.LLTokenizer(wrapper, eos_token=vocabulary.eos_token_ids)
    wrapper.tokens = (
        vocabulary.tokens
    ) = []  # llguidance has its own copy, and keeps the wrapper
    return made


class GrammarSampler:
    """The state of a response in its grammar."""

    def __init__(self, grammar: Grammar, model: NativeModel) -> None:
        """Create the state of an empty response.

        Raises:
            ConfigurationError: the grammar is malformed, or no text follows it.
        """
        self._model = model
        made, tokenizer = prepare_grammar(grammar, model)
        self._matchers = [matcher.deep_copy() for matcher in made]
        self._watch = (
            _TriggerWatch(grammar.triggers, model, tokenizer.greedy_tokenize)
            if grammar.triggers
            else None
        )
        self._begun: list[int] | None = (
            # the tokens that the last checked one would switch the grammar on with
            None
        )

    def allows(self, token: int) -> bool:
        """Return whether this token may be next."""
        if self._watch is None:
            return all(self._continues(matcher, token) for matcher in self._matchers)
        self._begun = tokens = self._watch.triggered_by(token)
        return tokens is None or all(
            matcher.validate_tokens(tokens) == len(tokens) for matcher in self._matchers
        )

    def accept(self, token: int) -> None:
        """Add a token that :meth:`allows` has just checked."""
        tokens = [token]
        if self._watch is not None:
            if self._begun is None:
                self._watch.push(token)
                return
            tokens, self._watch = self._begun, None
        if not self._model.piece(token)[1]:
            for matcher in self._matchers:
                matcher.consume_tokens(tokens)

    def allowed(self, banned: list[int]) -> npt.NDArray[np.intp]:
        """Return the ids of the tokens that may be next, without banned ones.

        Before a trigger these are all tokens; :meth:`allows` then refuses those that
        would begin the grammar wrongly.

        Raises:
            ModelError: no token is allowed.
        """
        left = np.ones(self._model.vocabulary_size, dtype=np.bool_)
        for matcher in self._matchers if self._watch is None else ():
            left &= self._mask(matcher)
        if not left.any():
            also = ", and keeps its numbers short" if len(self._matchers) > 1 else ""
            raise ModelError(
                f"no token of {self._model.path.name} continues a text that follows "
                f"the grammar{also}"
            )
        left[banned] = False
        ids = np.flatnonzero(left)
        if not ids.size:
            raise ModelError(
                "the grammar allows no token here that neither logit_bias nor the GGUF "
                "file bans"
            )
        return ids

    def _continues(self, matcher: Any, token: int) -> bool:
        if matcher.validate_tokens([token]):
            return True
        return self._model.piece(token)[1] and bool(matcher.is_accepting())

    def _mask(self, matcher: Any) -> npt.NDArray[np.bool_]:
        """Return a mask of the tokens that one matcher allows, shape (V,)."""
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        if matcher.is_stopped() and not matcher.is_accepting():
            why = " ".join(matcher.get_error().split())[:200]
            raise ModelError(
                f"the grammar allows no token here ({matcher.stop_reason()}): {why}"
            )
        return np.unpackbits(
            bits, count=self._model.vocabulary_size, bitorder="little"
        ).view(np.bool_)


class _TriggerWatch:
    """The last tokens of a response, as far back as a trigger could begin."""

    def __init__(
        self,
        triggers: Sequence[str],
        model: NativeModel,
        spell: Callable[[str], list[int]],
    ) -> None:
        """Create an empty window; ``spell`` returns the tokens of a text."""
        self._model, self._spell = model, spell
        self._triggers = [trigger.encode("utf-8", "replace") for trigger in triggers]
        self._reach = max(map(len, self._triggers)) - 1
        self._tokens: deque[tuple[int, bytes]] = deque()
        self._length = 0

    def triggered_by(self, token: int) -> list[int] | None:
        """Return the tokens of the response from a trigger's first byte on, or None
        without a trigger.
        """
        written = [*self._tokens, (token, self._model.piece(token)[0])]
        text = b"".join(piece for _, piece in written)
        begins = [at for at in map(text.find, self._triggers) if at >= 0]
        if not begins:
            return None
        begin, at, tokens = min(begins), 0, list[int]()
        for number, piece in written:
            if at >= begin:
                tokens.append(number)
            elif at + len(piece) > begin:  # the trigger begins inside this token
                tokens += self._spell(piece[begin - at :].decode("utf-8", "replace"))
            at += len(piece)
        return tokens

    def push(self, token: int) -> None:
        """Add a token that did not complete a trigger."""
        piece = self._model.piece(token)[0]
        self._tokens.append((token, piece))
        self._length += len(piece)
        while self._tokens and self._length - len(self._tokens[0][1]) >= self._reach:
            self._length -= len(self._tokens.popleft()[1])
