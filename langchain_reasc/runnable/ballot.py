"""Read the votes of responses to one question, and their confidence."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from langchain_core.messages import AIMessage

from langchain_reasc.answers import (
    ADVICE,
    NO_ANSWER,
    REASONING,
    TOO_SLOW,
    Classes,
    Vote,
    arguments_of,
    ending_of,
    held_to_schema,
    is_refusal,
    places_of,
    question_text,
    vote_of,
    why_unchecked,
    with_answer,
)
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import (
    ConfidenceError,
    FingerprintMismatch,
    LogprobsUnavailable,
    ReASCError,
    is_control_flow,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import Decision, Response
from langchain_reasc.models.contract import LOGPROBS_REFUSED
from langchain_reasc.models.fingerprint import check_signal
from langchain_reasc.models.logprobs import Provenance, SignalReading, read_signals
from langchain_reasc.runnable.meanings import Meanings
from langchain_reasc.runnable.plan import Plan
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import NEVER_AGREES
from langchain_reasc.sampling import within

logger = logging.getLogger(__name__)
# seconds after the question's time, for answers of responses that came just before
_LATE: Final = 0.1
_NO_TIME: Final = 0.01  # seconds for each answer after that, as most are found at once


class Ballot:
    """Reads the responses to one question, in launch order.

    The first response whose scores are made of another signal, k or V than those of the
    calibration is refused; a later one is without confidence.

    Args:
        request: what is asked, of which model, and how long it may take.
        plan: how it is decided.
        learning: whether the token signals of all responses are kept, to learn from.
            Then none is refused.
        spans: whether their spans are kept, too: the answer's tokens, and the last
            step's.

    Attributes:
        readings: the token signals of each response, None where it has none; empty
            unless they are kept.
        missing: why votes have no confidence, and count as one each.
        provenance: the ``top_k`` and ``vocabulary_size`` that the first score was made
            of.
    """

    def __init__(
        self, request: Request, plan: Plan, *, learning: bool, spans: bool = False
    ) -> None:
        setup, model, options = request.setup, request.model, request.setup.options
        clock, cutoff = request.clock, request.cutoff
        self.extract = held_to_schema(setup.extract, model.text_schema)
        self._question = question_text(request.messages)
        self.meanings: Meanings | None = None
        if equivalence := setup.extract.equivalence:
            self.meanings = Meanings(
                equivalence,
                request.messages,
                request.config,
                clock=clock,
                cutoff=cutoff,
            )
        self._tools, self._schemas = options.tool_votes, model.schemas
        self._text_schema = model.text_schema
        self._measure, self._learning = plan.measure, learning
        scored_by = plan.measure or options.measure
        self._reads_spans = spans or (scored_by is not None and scored_by.of_span)
        self._calibration = (
            None
            if options.allow_fingerprint_mismatch or plan.counted
            else plan.calibration
        )
        self._required = setup.on_missing_confidence == "error" and not plan.counted
        self._clock, self._cutoff = clock, cutoff
        self._near = Classes(self._is_near)
        self._failures: dict[str, None] = {}  # notices, in order, each once
        self._no_vote: Counter[str] = Counter()  # why -> responses
        own = not isinstance(options.answer, str)  # which knows what is compared
        self._helps = {
            why: advice
            for why, advice in ADVICE.items()
            if not (own and why == NO_ANSWER)
        }
        self._odd: Counter[str] = (
            Counter()
        )  # what was odd about log-probabilities -> responses
        self.missing: list[str] = []
        self._refused: str | None = None  # why the server gives no logprobs
        self._scored = False
        self.readings: list[SignalReading | None] = []
        self.provenance = Provenance(top_k=None, vocabulary_size=None)

    def read_response(self, message: AIMessage) -> Response:
        """Read a response.

        Raises:
            LogprobsUnavailable: it has no usable log-probabilities, and they are
                required.
            ConfidenceError: its signals are empty or not finite, and they are required.
            FingerprintMismatch: the calibration was made of another signal, k or V.
        """
        vote = self._vote(message)
        score = None
        if self._measure or self._learning:
            self._refused = self._refused or message.response_metadata.get(
                LOGPROBS_REFUSED
            )
            score = self._score(message, vote)
        return self._response(message, vote, score)

    def _response(
        self, message: AIMessage, vote: Vote, score: float | None
    ) -> Response:
        answer = self._class_of(vote)
        blank = _is_blank(message, vote)
        response = Response(
            answer,
            score,
            vote.cut_off,
            vote.kind,
            vote.fields,
            instead=vote.instead,
            blank=blank,
        )
        if answer is None or vote.calls or not self.extract.by_form:
            return response
        form = self.extract.form(answer)
        return replace(response, key=form.key, weaker=form.weaker)

    def read_audit(self, message: AIMessage) -> Response:
        """Read a response that decides nothing; its token signals are kept to learn
        from.
        """
        vote, reading = self._vote(message), None
        with suppress(LogprobsUnavailable, ConfidenceError):
            reading = self._reading(message, vote)
        self.readings.append(reading)
        return self._response(message, vote, None)

    def add_notice(self, notice: str) -> None:
        """Keep a notice of something that failed; the same one is given once."""
        self._failures[notice] = None

    def write_answer(self, message: AIMessage, answer: str) -> AIMessage | None:
        """Return a response with an object in it that was put together from several;
        None where that cannot be.
        """
        return (
            with_answer(message, answer, self.extract.objects)
            if self.extract.objects
            else None
        )

    def notices(self, responses: Sequence[Response]) -> list[str]:
        """Return notices of responses that cast no vote, or one that alone would not
        have been enough.
        """
        seen, notices = len(responses), list(self._failures)
        if self._no_vote:
            reasons = "; ".join(
                [f"{why} ({count})" for why, count in self._no_vote.most_common()]
            )
            notice = (
                f"{self._no_vote.total()} of {seen} responses cast no vote: {reasons}"
            )
            frequent = [
                why
                for why, count in self._no_vote.most_common()
                if 2 * count >= seen and why in self._helps
            ]
            advice = dict.fromkeys(self._helps[why] for why in frequent)
            notices.append("; ".join([notice, *advice]))
        if cut := [
            response
            for response in responses
            if response.cut_off and response.answer is not None
        ]:
            notices.append(
                f"{len(cut)} of {seen} responses were cut off after they had said "
                "their answer: it counts as a vote, but is never accepted alone; allow "
                "the model more tokens"
            )
        return [*notices, *(self.meanings.notices if self.meanings else ())]

    def confidence_notices(self, responses: int) -> list[str]:
        """Return notices of the confidences of this many responses."""
        notices = [
            f"{what} (in {count} of {responses} responses)"
            for what, count in self._odd.items()
        ]
        if self.missing:
            missing = f"{len(self.missing)} of {responses} responses carry no confidence and count as one vote each"
            notices.insert(0, f"{missing}: {self.missing[0]}")
        elif self._refused:
            notices.append(
                "asked without logprobs, which the model's server refuses: "
                f"{self._refused}"
            )
        return notices

    def never_agrees_notices(self, decision: Decision) -> list[str]:
        """Say what never agrees, and how to leave it out of the vote; log it once a
        process.
        """
        names = decision.never_agrees
        notice = (
            f"{NEVER_AGREES}: {' and '.join(names)} "
            f"{'differs' if len(names) == 1 else 'differ'} from response to response; "
            f"to leave that out of the vote: {self._advice(decision)}"
        )
        warn_once(notice)
        return [notice]

    def _vote(self, message: AIMessage) -> Vote:
        """Find the vote in the response's own words while the question has time: a
        user's function may take long.
        """
        read = partial(
            vote_of,
            message,
            self.extract,
            self._tools,
            self._schemas,
            question=self._question,
        )
        left = self._clock.left
        vote = Vote(None)
        try:
            vote = (
                read()
                if left is None
                else within(max(left + _LATE, _NO_TIME), read, self._cutoff)
            )
        except TimeoutError:
            vote = Vote(None, why_none=TOO_SLOW)
        except (
            Exception
        ) as error:  # the user's extractor: one odd response must not lose the others
            if isinstance(error, ReASCError) or is_control_flow(error):
                raise
            self.add_notice(f"the answer extractor failed on a response: {error!r}")
        if vote.why_none:
            self._no_vote[vote.why_none] += 1
        if vote.answer and (why := self._why_unchecked(message, vote)):
            self.add_notice(why)
        return vote

    def _why_unchecked(self, message: AIMessage, vote: Vote) -> str | None:
        if vote.calls and self._tools.check_schema:
            what, names = (
                "calls are not checked against the schemas of their tools",
                [one["name"] for one in message.tool_calls],
            )
            why = next(
                filter(
                    None,
                    (why_unchecked((self._schemas or {}).get(name)) for name in names),
                ),
                None,
            )
        else:
            what, objects = (
                "objects are not checked against their schema",
                self.extract.objects,
            )
            why = why_unchecked(objects.schema if objects else self._text_schema)
        return f"{what}: {why}" if why else None

    def _class_of(self, vote: Vote) -> str | None:
        """Return the first answer that says the same in other words, or with numbers
        near to these.
        """
        if vote.answer is None:
            return None
        if vote.calls or self.extract.objects:
            return self._near.class_of(vote.answer)
        return self.meanings.meaning_of(vote.answer) if self.meanings else vote.answer

    def _score(self, message: AIMessage, vote: Vote) -> float | None:
        """Return S(y); None where no confidence is asked for or can be read, or there
        is no vote to weigh.
        """
        reading = None
        try:
            reading = self._reading(message, vote)
            return self._score_by(self._measure, reading) if self._measure else None
        except (LogprobsUnavailable, ConfidenceError) as error:
            if self._measure and vote.answer is not None:
                if self._required:
                    raise
                self.missing.append(str(error))
            return None
        finally:
            if self._learning:
                self.readings.append(reading)

    def _reading(self, message: AIMessage, vote: Vote) -> SignalReading:
        places = (
            places_of(message, self.extract, vote, question=self._question)
            if self._reads_spans
            else None
        )
        return read_signals(message, of_calls=vote.calls, places=places)

    def _score_by(self, measure: Measure, reading: SignalReading) -> float:
        if self._calibration and (signal := self._calibration.signal):
            carried = [*reading.signals, *reading.withheld]
            try:
                check_signal(
                    signal,
                    self._calibration.provenance,
                    reading.provenance(signal),
                    carried,
                )
            except FingerprintMismatch as error:
                if not (self._scored or self._learning):
                    raise
                raise LogprobsUnavailable(str(error)) from error
        score = reading.score(measure)
        self._odd.update(reading.notices)
        if not self._scored:
            self._scored, self.provenance = True, reading.provenance(measure.signal)
        return score

    def _is_near(self, one: str, other: str) -> bool:
        objects = self.extract.objects
        return self._tools.same(one, other) or (
            objects is not None and objects.same(one, other)
        )

    def _advice(self, decision: Decision) -> str:
        """Return the option, as it is written, that leaves out of the vote what never
        agrees.
        """
        if arguments_of(decision.answer or "") is not None:
            return self._advice_on_calls(
                [name.split(".", 1) for name in decision.never_agrees]
            )
        objects = self.extract.objects
        kept = (
            list(objects.leave_out)
            if objects and set(objects.leave_out) != set(REASONING)
            else []
        )
        by_field = "by_field=True, " if objects and objects.by_field else ""
        return f"answer=json_object({by_field}leave_out={json.dumps([*kept, *decision.never_agrees])})"

    def _advice_on_calls(self, called: Sequence[Sequence[str]]) -> str:
        """Return the same for arguments of tools, (tool, argument) each."""
        excluded = self._tools.exclude_args
        if isinstance(excluded, Mapping):
            given = {tool: list(arguments) for tool, arguments in excluded.items()}
            for tool, argument in called:
                given.setdefault(tool, []).append(argument)
            return f"tool_votes=ToolVotes(exclude_args={json.dumps(given)})"
        kept = [] if set(excluded) == set(REASONING) else list(excluded)
        kept = list(dict.fromkeys([*kept, *(argument for _, argument in called)]))
        return f"tool_votes=ToolVotes(exclude_args={json.dumps(kept)})"


def _is_blank(message: AIMessage, vote: Vote) -> bool:
    """Return whether a complete response states no answer. A response that calls tools
    is never blank.
    """
    if vote.why_none != NO_ANSWER or message.tool_calls or message.invalid_tool_calls:
        return False
    return ending_of(message) == "whole" and not is_refusal(message)
