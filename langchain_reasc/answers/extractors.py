"""Extractors find the answer in a response. They compose: ``boxed() | last_number()``."""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, get_args, get_origin

import regex
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from langchain_reasc.answers.choices import (
    LATIN,
    ChoiceFinder,
    LabelFinder,
    chosen_letters,
    letters_of,
)
from langchain_reasc.answers.equivalence import (
    JUDGE_PROMPT,
    Equivalence,
    Same,
    by_embeddings,
    by_function,
    by_judge,
)
from langchain_reasc.answers.forms import Form, equivalent, form_of, written
from langchain_reasc.answers.json_values import (
    REASONING,
    Names,
    field_of_last_object,
    whole_value,
)
from langchain_reasc.answers.mathematics import (
    canonical_mathematics,
    require_math_verify,
)
from langchain_reasc.answers.objects import ObjectVotes
from langchain_reasc.answers.reduction import last_number_in
from langchain_reasc.answers.schemas import Schema
from langchain_reasc.answers.span import find_span
from langchain_reasc.answers.statements import boxed_content, last_statement
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Response, joined

ANY_TEXT: Final = "text"
"""The common answer of all texts if texts are not compared."""
_PATTERN_SECONDS: Final = 1.0
"""Seconds of processor time that a user's pattern may take on one text."""


@dataclass(frozen=True)
class Extractor:
    """A function from a response to an answer. ``a | b`` asks ``b`` if ``a`` finds no
    answer.

    Attributes:
        find: finds the span of the answer in a text (or in the message, with
            ``reads_message``), or returns None. With ``cut_off=True`` it accepts only
            answers that the text states explicitly.
        name: the name shown in messages.
        over_tool_calls: whether its answer also counts for a response that calls tools.
        reads_message: whether ``find`` is given the ``AIMessage``.
        reads_question: whether ``find`` takes the text of the question, as
            ``question``.
        canonical: writes a span as the answer.
        by_form: whether answers are compared by their forms (see :mod:`.forms`), and
            not as they are written.
        blocks: whether finding an answer may take seconds, and so runs in a thread
            instead of the event loop.
        texts_vote: whether texts are compared. Otherwise all texts vote for one common
            answer.
        objects: how answers that are objects are compared; None if answers are not
            objects.
        equivalence: decides which differently spelled answers vote together; None to
            compare spellings.
        otherwise: the extractor that is asked if this one finds no answer.
    """

    find: Callable[..., str | None]
    name: str
    over_tool_calls: bool = False
    reads_message: bool = False
    reads_question: bool = False
    canonical: Callable[[str], str] = written
    by_form: bool = True
    blocks: bool = False
    texts_vote: bool = True
    objects: ObjectVotes | None = None
    equivalence: Equivalence | None = None
    otherwise: "Extractor | None" = None

    def __call__(
        self, response: str | AIMessage, *, question: str = "", cut_off: bool = False
    ) -> str | None:
        """Return the answer in a text or a message. If it was cut off, accept only
        explicit statements.
        """
        span, finder = self._first(response, question, cut_off)
        if span is None:
            return None
        return finder.canonical(span) or None

    def raw(
        self, response: str | AIMessage, *, question: str = "", cut_off: bool = False
    ) -> str | None:
        """Return the span of the answer as the response spells it."""
        return self._first(response, question, cut_off)[0]

    def label(self, right: str) -> str:
        """Write the right answer as extracted answers are written."""
        return self.canonical(right)

    def form(self, answer: str) -> Form:
        """Return what an answer is compared by."""
        if self.by_form:
            return form_of(answer)
        return Form(answer, answer)

    def is_same(self, answer: str | None, label: str) -> bool:
        """Return whether an answer is that of a label; where one has a unit, the other
        may leave it out.
        """
        if answer is None:
            return False
        return answer == label or (self.by_form and equivalent(answer, label))

    def same_as(self, label: str, answers: Iterable[str | None]) -> set[str]:
        """Return the answers to a question that are the label's, which joins their only
        unit if it has none.
        """
        distinct = [answer for answer in dict.fromkeys(answers) if answer is not None]
        if not self.by_form:
            return {answer for answer in distinct if answer == label}
        responses = [self._response(answer) for answer in (*distinct, label)]
        *answered, labelled = joined(responses)
        return {
            answer
            for answer, response in zip(distinct, answered, strict=True)
            if response.answer == labelled.answer
        }

    def _response(self, answer: str) -> Response:
        form = self.form(answer)
        return Response(answer, key=form.key, weaker=form.weaker)

    def __or__(self, other: "Extractor") -> "Extractor":
        rest = self.otherwise | other if self.otherwise else other
        own_name = self.name.split(" | ")[0]
        return replace(
            self,
            otherwise=rest,
            name=f"{own_name} | {rest.name}",
            over_tool_calls=self.over_tool_calls or other.over_tool_calls,
            blocks=self.blocks or other.blocks,
            equivalence=self.equivalence or other.equivalence,
        )

    def _first(
        self, response: str | AIMessage, question: str, cut_off: bool
    ) -> "tuple[str | None, Extractor]":
        """Return the first span that the chain of extractors finds, and the extractor
        that found it.
        """
        if isinstance(response, str):
            if self.reads_message:
                response = AIMessage(response)
        elif not self.reads_message:
            response = str(response.text)
        if self.reads_question:
            span = self.find(response, cut_off=cut_off, question=question)
        else:
            span = self.find(response, cut_off=cut_off)
        if span is not None:
            return str(span), self
        if self.otherwise is None:
            return None, self
        return self.otherwise._first(response, question, cut_off)


AnswerSpec = str | Extractor | Callable[[str], str | None] | Sequence[str] | type[Enum]
"""Where the answer is in a response: what :func:`extractor` accepts."""


def extractor(spec: Any = "auto") -> Extractor:
    """Return the extractor that a name, labels or a function stand for.

    Args:
        spec: ``"auto"`` (what the response states as its answer, or is), ``"boxed"``,
            ``"number"`` (the last one), ``"choice"``, ``"math"`` (like auto, and equal
            formulas agree), ``"regex:PATTERN"`` (its first group), ``"json:FIELD"``
            (dots descend), ``"json"`` (the whole object or list, as
            :func:`json_object`), ``"text"`` (the whole response), ``"message"`` (for
            agents: tool calls and JSON objects, without comparing texts), labels
            (``"spam,ham"``, a list of names, an ``Enum`` or a ``Literal``), or any
            function from text to an answer or None.

    Raises:
        ConfigurationError: an unknown name, an invalid pattern, or fewer than two
            different labels.
        MissingExtraError: ``"math"`` without the extra ``math``.
    """
    if isinstance(spec, Extractor):
        return spec
    names = _label_names(spec)
    if names is not None:
        return labels(names)
    if callable(spec):
        find = partial(_unless_cut_off, spec)
        return Extractor(find, _name_of(spec), over_tool_calls=True, blocks=True)
    # "regex:PATTERN" and "json:FIELD", or labels such as "spam,ham"
    kind, _, rest = str(spec).partition(":")
    if "," in kind and not rest:
        return labels([name.strip() for name in kind.split(",")])
    if kind in _WITH_ARGUMENT and rest:
        return _WITH_ARGUMENT[kind](rest)
    if spec not in _NAMED:
        raise ConfigurationError(
            f"unknown answer extractor {spec!r}; choose auto, boxed, number, choice, "
            "math, text, message, json, regex:PATTERN, json:FIELD, labels such as "
            "spam,ham, or pass a function from text to an answer"
        )
    return _NAMED[spec]()


def _label_names(spec: Any) -> list[str] | None:
    """Return the labels that a list, an Enum or a Literal names, or None for any other
    spec.
    """
    if isinstance(spec, type) and issubclass(spec, Enum):
        return [str(member.value) for member in spec]
    if get_origin(spec) is Literal:
        members = get_args(spec)
        return [str(getattr(member, "value", member)) for member in members]
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return [str(name) for name in spec]
    return None


def labels(names: Sequence[str]) -> Extractor:
    """Return an extractor of the label that a response is or states.

    A response that names several labels as alternatives, or none, casts no vote; "not
    spam" is not spam.

    Args:
        names: the labels. Their case does not count.

    Raises:
        ConfigurationError: fewer than two different labels, or an empty one.
    """
    # The case of a label does not count, so that "Spam" and "spam" are one.
    folded = {name.casefold().strip() for name in names}
    if len(folded) < 2 or len(folded) < len(names) or "" in folded:
        raise ConfigurationError(
            "answer=[...] needs at least two different labels that are not empty, got "
            f"{names!r}"
        )
    return _by_label(LabelFinder(names), f"labels:{'|'.join(names)}")


def message_extractor(
    find: Callable[[AIMessage], str | None], *, name: str | None = None
) -> Extractor:
    """Return an extractor whose function gets the whole ``AIMessage``: its tool calls,
    its blocks, how it ended.

    The function alone decides what is an answer, also for refusals and for responses
    that were cut off (which never pass the gate).

    Args:
        find: message -> answer, or None.
        name: the name shown in messages; None for the function's.
    """
    return Extractor(
        partial(_unless_cut_off, find),
        name or _name_of(find),
        over_tool_calls=True,
        reads_message=True,
        blocks=True,
    )


def boxed() -> Extractor:
    """Return an extractor of the content of the last ``\\boxed{...}``, braces balanced."""
    return Extractor(boxed_content, "boxed")


def last_number() -> Extractor:
    """Return an extractor of the last quantity in the text: ``-5``, ``$1,234.5``,
    ``3/4``, ``3.2e-4``, ``3:45 PM``.
    """
    return Extractor(_last_number, "number")


def choice(letters: str = LATIN) -> Extractor:
    """Return an extractor of the letters of a multiple-choice answer: boxed, stated,
    called right, or alone.

    Several letters that are joined are one answer, whatever their order.
    """
    return _by_label(ChoiceFinder(letters), "choice")


def _by_label(finder: ChoiceFinder | LabelFinder, name: str) -> Extractor:
    return Extractor(
        finder, name, reads_question=True, canonical=finder.label, by_form=False
    )


def mathematical() -> Extractor:
    """Return an extractor like ``auto`` that lets equal formulas vote together.

    For example, ``\\frac{1}{\\sqrt{2}}`` agrees with ``\\sqrt{2}/2``.

    Raises:
        MissingExtraError: math-verify is not installed.
    """
    require_math_verify()
    return Extractor(
        _auto, "math", reads_question=True, canonical=canonical_mathematics, blocks=True
    )


def matching(pattern: str) -> Extractor:
    """Return an extractor of the first group (or, without groups, the whole) of the
    last match of a pattern.

    A pattern that takes longer than a second of processor time on a response finds
    nothing in it.

    Raises:
        ConfigurationError: the pattern is not a regular expression.
    """
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ConfigurationError(
            f"invalid answer pattern {pattern!r}: {error}"
        ) from None

    def find(text: str, *, cut_off: bool = False) -> str | None:
        # A long text may have many matches, of which only the last one is needed.
        matches = deque(compiled.finditer(text, timeout=_PATTERN_SECONDS), maxlen=1)
        if not matches:
            return None
        match = matches.pop()
        group: str | None = match[min(compiled.groups, 1)]
        if not cut_off:
            return group
        # A match is an explicit answer if it has words or marks around its group, and
        # ends before the text does.
        around = match[0].replace(group or "", "", 1)
        if match.end() < len(text) and re.search(r"\w|#", around):
            return group
        return None

    return Extractor(find, f"regex:{pattern}", blocks=True)


def json_field(field: str) -> Extractor:
    """Return an extractor of a field of the last JSON object that has it; ``a.b``
    descends.
    """
    return Extractor(
        partial(field_of_last_object, path=field), f"json:{field}", over_tool_calls=True
    )


def json_object(
    *,
    by_field: bool = False,
    leave_out: Names = REASONING,
    tolerance: Mapping[str, float] | None = None,
    voted: Names = (),
    schema: Schema | None = None,
    check: Callable[[dict[str, Any]], bool] | None = None,
) -> Extractor:
    """Return an extractor of structured output: the last JSON value of a text, or the
    arguments of its tool call.

    The value is the last object, or list that holds an object, that is not inside
    another one. A list without objects counts only if it is the whole text, in a code
    block or not: elsewhere ``[1]`` may be a citation. A list is one value, in an object
    and alone: its elements are compared in order, and are not answers by themselves.

    Args:
        by_field: whether each field is decided separately (``"a.b"`` is a field inside
            another) and the answer is assembled from them. Numbers take their weighted
            median; other fields are voted on.
        leave_out: fields that do not count, at any depth; by default those in which a
            model thinks aloud.
        tolerance: field -> the largest difference at which two numbers still agree.
        voted: with ``by_field``, fields whose numbers are names, such as an id, and are
            voted on.
        schema: a JSON schema, or a class that pydantic can validate. Objects that it
            refuses cast no vote, and its defaults are filled in. If it has a name,
            calls of other tools remain calls.
        check: takes the whole object (or list) and returns whether it makes sense, for
            example whether its parts add up. Objects that it refuses or fails on cast
            no vote. If it refuses an assembled object, the answer is the object of the
            response that agrees with most fields.

    Raises:
        ConfigurationError: a tolerance is not a distance, a single string is given
            where several are expected, or the schema is unknown.
    """
    votes = ObjectVotes(
        by_field=by_field,
        leave_out=leave_out,
        tolerance=tolerance or {},
        voted=voted,
        schema=schema,
        check=check,
    )
    return Extractor(
        votes.in_text,
        str(votes),
        canonical=votes.label,
        by_form=False,
        objects=votes,
        blocks=check is not None,
    )


def free_text(
    *,
    same: Same | None = None,
    embeddings: Embeddings | None = None,
    threshold: float = 0.9,
    judge: Runnable[Any, Any] | None = None,
    prompt: str | None = None,
    timeout: float | None = None,
) -> Extractor:
    """Return an extractor of the whole text, for summaries or advice. Answers that mean
    the same vote together.

    Exactly one of ``same``, ``embeddings`` and ``judge`` compares two answers. Answers
    that differ only in case, white space or a final full stop need no comparison. Any
    other answer is compared with the first answer of each class, in the order in which
    samples were launched, until one means the same: 16 different answers cost 120
    comparisons. The first answer names its class, and is ``reasc.answer``.

    If a comparison fails, the two answers count as different, and a notice says how
    many comparisons failed. After three failures in a row, no more answers to this
    question are compared. Tool calls vote as usual, and a text that was cut off casts
    no vote.

    Args:
        same: compares two answers, and returns a bool.
        embeddings: two answers mean the same if the cosine of their vectors is at least
            ``threshold``. Each answer is embedded once.
        threshold: above 0, at most 1. The right value depends on the embedding model.
        judge: a chat model that is asked whether two answers mean the same, or any
            Runnable from a prompt string to an ``AIMessage``. Answers are sent whole,
            however long. Each call is a run below the question's, tagged
            ``reasc:judge``. The tokens are in
            :attr:`Usage.judge <langchain_reasc.runnable.result.Usage>`, not in the
            winning message's ``usage_metadata``, because the judge is another model
            with another price.
        prompt: the judge's prompt instead of
            :data:`~langchain_reasc.answers.JUDGE_PROMPT`: a text with ``{first}``,
            ``{second}`` and optionally ``{question}`` (the last human message). Put
            each between tags, as in ``<a>{first}</a>``: the prompt's tags are escaped
            inside an answer. The judge must reply yes or no as a word at the beginning
            or end, or in JSON as ``{"same": true}``.
        timeout: seconds that a comparison may take. The question's own timeout ends
            comparing too.

    Raises:
        ConfigurationError: not exactly one of the three is given, or an option does not
            go with it.

    Example:
        >>> reasc = ReASCRunnable(model=llm, answer=free_text(judge=small_llm))
    """
    comparisons = {"same": same, "embeddings": embeddings, "judge": judge}
    kinds = [kind for kind, comparison in comparisons.items() if comparison is not None]
    if len(kinds) != 1:
        raise ConfigurationError(
            "free_text needs exactly one of same=, embeddings= and judge= to compare "
            f"answers, got {' and '.join(kinds) or 'none'}"
        )
    if prompt is not None and judge is None:
        raise ConfigurationError("prompt= is the prompt of the judge; pass judge= too")
    if same is not None:
        equivalence = by_function(same)
    elif embeddings is not None:
        equivalence = by_embeddings(embeddings, threshold)
    else:
        equivalence = by_judge(judge, JUDGE_PROMPT if prompt is None else prompt)
    equivalence = replace(equivalence, timeout=timeout)
    return Extractor(
        partial(_unless_cut_off, str),
        f"free_text:{equivalence.name}",
        canonical=_as_written,
        by_form=False,
        blocks=True,
        equivalence=equivalence,
    )


def whole_message(schema: Schema | None = None) -> Extractor:
    """Return an extractor for agents: tool calls, or an object (or a list that holds
    one) that is the whole text.

    All other texts, also those that were cut off, are :data:`ANY_TEXT`, because their
    spelling cannot be compared.

    Args:
        schema: the schema that the call asks the text to follow, or None. A text that
            is not a value of this schema casts no vote.
    """
    find = partial(_object_or_text, votes=ObjectVotes(schema=schema))
    return Extractor(find, "message", canonical=str, by_form=False, texts_vote=False)


def held_to_schema(extract: Extractor, schema: Schema | None) -> Extractor:
    """Return the extractor for a call that asks for text of a schema, unless the
    extractor has a schema.
    """
    # A chain may find answers that are not objects.
    if schema is None or extract.otherwise:
        return extract
    if not extract.texts_vote:
        return whole_message(schema)
    if extract.objects is None or extract.objects.schema is not None:
        return extract
    votes = replace(extract.objects, schema=schema)
    return replace(extract, find=votes.in_text, canonical=votes.label, objects=votes)


def _unless_cut_off(
    find: Callable[[Any], str | None], response: Any, *, cut_off: bool
) -> str | None:
    """Wrap a function that does not know whether a response was cut off, and may find
    half an answer.
    """
    if cut_off:
        return None
    return find(response)


def _auto(text: str, *, question: str = "", cut_off: bool = False) -> str | None:
    span = find_span(text, question, cut_off=cut_off)
    letters = letters_of(question)
    # "B" and "B) Bergen" are the same if the question lists options.
    if span and letters:
        chosen = chosen_letters(span, letters)
        if chosen:
            return chosen.upper()
    return span


_TAIL: Final = 40
_NOT_A_NUMBER: Final = re.compile(r"\\over|\(mod\s")


def _last_number(text: str, *, cut_off: bool = False) -> str | None:
    statement = None
    if cut_off:
        statement = last_statement(text, cut_off=True)
        if statement is None:
            return None
    # "{3 \\over 4}" and "3 (mod 5)" are more than their last number.
    if _NOT_A_NUMBER.search(text[-_TAIL:]):
        return text[-_TAIL:]
    return last_number_in(statement.span if statement else text)


def _object_or_text(
    text: str, *, votes: ObjectVotes, cut_off: bool = False
) -> str | None:
    value = whole_value(text, any_list=votes.schema is not None)
    if value is not None:
        answer = votes.answer(value)
        if answer:
            return answer
    # A text that the schema refuses is not an answer.
    if votes.schema or not text.strip():
        return None
    return ANY_TEXT


def _as_written(text: str) -> str:
    # Half of a surrogate pair cannot be written to a file.
    without_surrogates = text.encode("utf-8", "replace").decode("utf-8")
    return unicodedata.normalize("NFC", without_surrogates).strip()


def _name_of(find: Callable[..., Any]) -> str:
    return str(getattr(find, "__name__", "custom"))


_WITH_ARGUMENT: Final[Mapping[str, Callable[[str], Extractor]]] = {
    "regex": matching,
    "json": json_field,
}
_NAMED: Final[Mapping[str, Callable[[], Extractor]]] = {
    "auto": partial(Extractor, _auto, "auto", reads_question=True),
    "boxed": boxed,
    "number": last_number,
    "choice": choice,
    "math": mathematical,
    "text": partial(Extractor, partial(_unless_cut_off, str), "text"),
    "json": json_object,
    "message": whole_message,
}
