"""Answers: the vote of each response, spelled so that equal answers vote together.

The answer is a property of the message. The first row that fits decides:

==============================  =======================================================================================
a response                      votes for
==============================  =======================================================================================
read by ``message_extractor``   what its function returns for the ``AIMessage``, whatever the rows below say
that refuses, or was filtered   nothing: it has a ``refusal`` block or field, or a finish reason that says so
with an invalid tool call       nothing, unless a function or ``json:`` finds an answer in its text
with tool calls                 its calls: the multiset of ``{name, args}``, without ids, with the arguments that the
                                tools would get. A response that was cut off votes for nothing. What a function or
                                ``json:`` finds in the text comes first
with calls that cannot be made  nothing: the tool was not bound, or would refuse the arguments
with an object's tool call      read by ``json_object``: that object, as if the text contained it
whose reasoning never ended     nothing
that was cut off                what its text states explicitly, and never through the gate: a closed box, ``<answer>``,
                                ``####``, "the answer is ..." up to the end of the sentence, a complete JSON object, a
                                pattern's match that has words or marks around its group. What a function finds does
                                not count, because it may be half an answer
any other                       what the extractor finds in its text. Reasoning is left out: tags such as ``<think>``,
                                Harmony's channels, and blocks and fields of reasoning. With ``message``, the JSON
                                object that is the whole text; all other texts count as one answer, cut off or not (if
                                the call asks for a schema, only objects that the schema allows vote)
==============================  =======================================================================================

Three steps lead from a text to its vote, each in files that read top-down:

1. :mod:`.span` finds the span that is the answer, by :mod:`.statements`, :mod:`.prose` and :mod:`.reduction`.
2. :mod:`.forms` brings the whole span into a canonical form. What it does not understand is compared as text.
3. :func:`~langchain_reasc.method.decision.joined` counts equal forms as one answer, and a number without a unit as the
   only unit that other responses name.

:mod:`.choices` finds letters and labels. Calls are compared as :class:`ToolVotes` says (without arguments such as
``reasoning``), objects as :func:`json_object` does, and answers in free text by their meaning, see :func:`free_text`.

Responses that call tools vote first on which tools are called. So calls that differ in an argument do not lose to
fewer responses that call no tool.
"""

from langchain_reasc.answers.calls import ToolVotes, arguments_of, kind_of
from langchain_reasc.answers.choices import chosen_letters
from langchain_reasc.answers.endings import (
    FINISH_FIELDS,
    UnknownFinish,
    ending_in,
    ending_of,
    failed_reason,
    finish_of,
    finish_reasons,
    has_finish_reason,
    is_refusal,
    says_nothing,
    without_reasoning,
)
from langchain_reasc.answers.equivalence import (
    JUDGE_PROMPT,
    Classes,
    Equivalence,
    Same,
    Unclear,
    fill_prompt,
    spelling,
)
from langchain_reasc.answers.extractors import (
    ANY_TEXT,
    AnswerSpec,
    Extractor,
    boxed,
    choice,
    extractor,
    free_text,
    held_to_schema,
    json_field,
    json_object,
    labels,
    last_number,
    matching,
    message_extractor,
)
from langchain_reasc.answers.forms import Form, equivalent, form_of, written
from langchain_reasc.answers.json_values import REASONING
from langchain_reasc.answers.mathematics import (
    canonical_mathematics,
    require_math_verify,
)
from langchain_reasc.answers.objects import ObjectVotes, with_answer
from langchain_reasc.answers.schemas import (
    STRUCTURE,
    Schema,
    SchemaCheck,
    Schemas,
    check_value,
    runs_functions,
    schemas_of,
    text_schema_of,
    why_unchecked,
)
from langchain_reasc.answers.units import load_units, units_are_loaded
from langchain_reasc.answers.vote import (
    ADVICE,
    NO_ANSWER,
    TOO_SLOW,
    Places,
    Vote,
    places_of,
    question_text,
    vote_of,
)

__all__ = [
    "ADVICE",
    "ANY_TEXT",
    "EXTRACTION_VERSION",
    "FINISH_FIELDS",
    "JUDGE_PROMPT",
    "NO_ANSWER",
    "REASONING",
    "STRUCTURE",
    "TOO_SLOW",
    "AnswerSpec",
    "Classes",
    "Equivalence",
    "Extractor",
    "Form",
    "ObjectVotes",
    "Places",
    "Same",
    "Schema",
    "SchemaCheck",
    "Schemas",
    "ToolVotes",
    "Unclear",
    "UnknownFinish",
    "Vote",
    "arguments_of",
    "boxed",
    "canonical_mathematics",
    "check_value",
    "choice",
    "chosen_letters",
    "ending_in",
    "ending_of",
    "equivalent",
    "extractor",
    "failed_reason",
    "fill_prompt",
    "finish_of",
    "finish_reasons",
    "form_of",
    "free_text",
    "has_finish_reason",
    "held_to_schema",
    "is_refusal",
    "json_field",
    "json_object",
    "kind_of",
    "labels",
    "last_number",
    "load_units",
    "matching",
    "message_extractor",
    "places_of",
    "question_text",
    "require_math_verify",
    "runs_functions",
    "says_nothing",
    "schemas_of",
    "spelling",
    "text_schema_of",
    "units_are_loaded",
    "vote_of",
    "why_unchecked",
    "with_answer",
    "without_reasoning",
    "written",
]

EXTRACTION_VERSION = 7
"""The version of the rules that find answers. Recordings name the version, since
another may find other answers.
"""
