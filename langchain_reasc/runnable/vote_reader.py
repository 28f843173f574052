"""Read the votes of responses to one question, and their confidence."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from langchain_reasc.models.signal_reading import (
    Provenance,
    SignalReading,
    read_signals,
)
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.meanings import Meanings
from langchain_reasc.runnable.request import Request
from langchain_reasc.sampling import within

# Seconds after the question's time, for answers of responses that came just before.
_LATE: Final = 0.1
# Seconds for each answer after that, as most are found at once.
_NO_TIME: Final = 0.01


class VoteReader:
    """Reads the responses to one question, in launch order.

    The first response whose scores are made of another signal, k or V than those of the
    calibration is refused; a later one is without confidence.

    Args:
        request: what is asked, of which model, and how long it may take.
        plan: how it is decided.
        keeps_readings: whether the token signals of all responses are kept, to learn
            from. Then no response is refused.
        keeps_spans: whether the signals of spans are kept, too: of the answer's tokens,
            and of the last step's.

    Attributes:
        extract: finds the answer in a response.
        readings: the token signals of each response, None where it has none; empty
            unless they are kept.
        missing: why votes have no confidence, and count as one each.
        provenance: the ``top_k`` and ``vocabulary_size`` that the first score was made
            of.
        meanings: sorts answers in free text; None for other answers.
    """

    def __init__(
        self,
        request: Request,
        plan: DecisionPlan,
        *,
        keeps_readings: bool,
        keeps_spans: bool = False,
    ) -> None:
        self._request = request
        self._plan = plan
        self._keeps_readings = keeps_readings
        self._options = request.voter.options
        self._schemas = request.model.schemas
        self._text_schema = request.model.text_schema
        self.extract = held_to_schema(request.voter.extract, self._text_schema)
        self._question = question_text(request.messages)
        measure = plan.measure or self._options.measure
        self._reads_spans = keeps_spans or (measure is not None and measure.of_span)
        self.meanings: Meanings | None = None
        equivalence = request.voter.extract.equivalence
        if equivalence is not None:
            self.meanings = Meanings(
                equivalence,
                request.messages,
                request.config,
                clock=request.clock,
                cutoff=request.cutoff,
            )
        self._near = Classes(self._is_near)
        # Notices of what failed, in order, each once.
        self._failures: dict[str, None] = {}
        # Why responses cast no vote -> how many.
        self._no_vote: Counter[str] = Counter()
        # What was odd about log-probabilities -> responses.
        self._odd: Counter[str] = Counter()
        self.missing: list[str] = []
        self._refusal: str | None = None
        self._is_scored = False
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
        if self._plan.measure is not None or self._keeps_readings:
            if self._refusal is None:
                self._refusal = message.response_metadata.get(LOGPROBS_REFUSED)
            score = self._score(message, vote)
        return self._response(message, vote, score)

    def read_audit(self, message: AIMessage) -> Response:
        """Read a response that decides nothing; its token signals are kept to learn
        from.
        """
        vote = self._vote(message)
        reading = None
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
        if self.extract.objects is None:
            return None
        return with_answer(message, answer, self.extract.objects)

    def notices(self, responses: Sequence[Response]) -> list[str]:
        """Return notices of responses that cast no vote, or one that alone would not
        have been enough.
        """
        notices = list(self._failures)
        if self._no_vote:
            notices.append(self._no_vote_notice(len(responses)))
        cut_off = [
            response
            for response in responses
            if response.cut_off and response.answer is not None
        ]
        if cut_off:
            notices.append(
                f"{len(cut_off)} of {len(responses)} responses were cut off after they "
                "had said their answer: it counts as a vote, but is never accepted "
                "alone; allow the model more tokens"
            )
        if self.meanings is not None:
            notices += self.meanings.notices
        return notices

    def _no_vote_notice(self, responses: int) -> str:
        counts = self._no_vote.most_common()
        reasons = "; ".join(f"{reason} ({count})" for reason, count in counts)
        parts = [
            f"{self._no_vote.total()} of {responses} responses cast no vote: {reasons}"
        ]
        # An extractor of the user's own knows best what is compared.
        is_own = not isinstance(self._options.answer, str)
        for reason, count in counts:
            advice = ADVICE.get(reason)
            if is_own and reason == NO_ANSWER:
                advice = None
            if advice and 2 * count >= responses and advice not in parts:
                parts.append(advice)
        return "; ".join(parts)

    def confidence_notices(self, responses: int) -> list[str]:
        """Return notices of the confidences of this many responses."""
        notices = [
            f"{oddity} (in {count} of {responses} responses)"
            for oddity, count in self._odd.items()
        ]
        if self.missing:
            missing = (
                f"{len(self.missing)} of {responses} responses carry no confidence and "
                f"count as one vote each: {self.missing[0]}"
            )
            notices.insert(0, missing)
        elif self._refusal:
            notices.append(
                "asked without logprobs, which the model's server refuses: "
                f"{self._refusal}"
            )
        return notices

    def hopeless_notice(self, decision: Decision) -> str | None:
        """Say what never agrees, and how to leave it out of the vote; log it once a
        process.
        """
        names = decision.never_agrees
        if not names:
            return None
        verb = "differs" if len(names) == 1 else "differ"
        notice = (
            f"agreement is hopeless: {' and '.join(names)} {verb} from response to response; "
            f"to leave that out of the vote: {self._advice(decision)}"
        )
        warn_once(notice)
        return notice

    def _response(
        self, message: AIMessage, vote: Vote, score: float | None
    ) -> Response:
        answer = self._class_of(vote)
        key = None
        weaker: tuple[str, ...] = ()
        # Calls are written canonically, and compared as they are written.
        if answer is not None and not vote.calls and self.extract.by_form:
            form = self.extract.form(answer)
            key = form.key
            weaker = form.weaker
        return Response(
            answer,
            score,
            vote.cut_off,
            vote.kind,
            vote.fields,
            instead=vote.instead,
            key=key,
            weaker=weaker,
            blank=_is_blank(message, vote),
        )

    def _vote(self, message: AIMessage) -> Vote:
        """Find the vote in the response's own words while the question has time: a
        user's function may take long.
        """
        find = partial(
            vote_of,
            message,
            self.extract,
            self._options.tool_votes,
            self._schemas,
            question=self._question,
        )
        left = self._request.clock.left
        vote = Vote(None)
        try:
            if left is None:
                vote = find()
            else:
                seconds = max(left + _LATE, _NO_TIME)
                vote = within(seconds, find, self._request.cutoff)
        except TimeoutError:
            vote = Vote(None, why_none=TOO_SLOW)
        except Exception as error:
            # The user's extractor: one odd response must not lose the others.
            if isinstance(error, ReASCError) or is_control_flow(error):
                raise
            self.add_notice(f"the answer extractor failed on a response: {error!r}")
        if vote.why_none:
            self._no_vote[vote.why_none] += 1
        if vote.answer:
            unchecked = self._unchecked_notice(message, vote)
            if unchecked is not None:
                self.add_notice(unchecked)
        return vote

    def _unchecked_notice(self, message: AIMessage, vote: Vote) -> str | None:
        """Say why the calls or the object of a response are not checked; None if they
        are, or need not be.
        """
        if vote.calls and self._options.tool_votes.check_schema:
            schemas = self._schemas or {}
            for call in message.tool_calls:
                reason = why_unchecked(schemas.get(call["name"]))
                if reason:
                    return (
                        "calls are not checked against the schemas of their tools: "
                        f"{reason}"
                    )
            return None
        schema = self._text_schema
        if self.extract.objects is not None:
            schema = self.extract.objects.schema
        reason = why_unchecked(schema)
        if not reason:
            return None
        return f"objects are not checked against their schema: {reason}"

    def _class_of(self, vote: Vote) -> str | None:
        """Return the first answer that says the same in other words, or with numbers
        near to these.
        """
        if vote.answer is None:
            return None
        if vote.calls or self.extract.objects:
            return self._near.class_of(vote.answer)
        if self.meanings is not None:
            return self.meanings.meaning_of(vote.answer)
        return vote.answer

    def _is_near(self, answer: str, other_answer: str) -> bool:
        if self._options.tool_votes.same(answer, other_answer):
            return True
        objects = self.extract.objects
        return objects is not None and objects.same(answer, other_answer)

    def _score(self, message: AIMessage, vote: Vote) -> float | None:
        """Return S(y); None where no confidence is read or can be, or there is no vote
        to weigh.
        """
        measure = self._plan.measure
        reading = None
        try:
            reading = self._reading(message, vote)
            if measure is None:
                return None
            return self._score_by(measure, reading)
        except (LogprobsUnavailable, ConfidenceError) as error:
            # A response without a vote needs no weight.
            if measure is not None and vote.answer is not None:
                if self._is_required:
                    raise
                self.missing.append(str(error))
            return None
        finally:
            # One for each response, so that responses and readings stay in step.
            if self._keeps_readings:
                self.readings.append(reading)

    @property
    def _is_required(self) -> bool:
        """Whether a response without confidence is an error."""
        on_missing = self._request.voter.on_missing_confidence
        return on_missing == "error" and not self._plan.is_counted

    def _reading(self, message: AIMessage, vote: Vote) -> SignalReading:
        places = None
        if self._reads_spans:
            places = places_of(message, self.extract, vote, question=self._question)
        return read_signals(message, of_calls=vote.calls, places=places)

    def _score_by(self, measure: Measure, reading: SignalReading) -> float:
        self._check_signal(reading)
        score = reading.score(measure)
        self._odd.update(reading.notices)
        if not self._is_scored:
            # All scores of a question are made of the same signal, k and V.
            self._is_scored = True
            self.provenance = reading.provenance(measure.signal)
        return score

    def _check_signal(self, reading: SignalReading) -> None:
        """Refuse scores that are made of another signal, k or V than the calibration's."""
        calibration = self._plan.calibration
        if calibration is None or calibration.signal is None or self._plan.is_counted:
            return
        if self._options.allow_fingerprint_mismatch:
            return
        signal = calibration.signal
        carried = [*reading.signals, *reading.withheld]
        provenance = reading.provenance(signal)
        try:
            check_signal(signal, calibration.provenance, provenance, carried)
        except FingerprintMismatch as error:
            # Only the first response is refused: later ones stand beside paid votes.
            if not self._is_scored and not self._keeps_readings:
                raise
            raise LogprobsUnavailable(str(error)) from error

    def _advice(self, decision: Decision) -> str:
        """Return the option, as it is written, that leaves out of the vote what never
        agrees.
        """
        names = list(decision.never_agrees)
        if arguments_of(decision.answer or "") is not None:
            return self._advice_on_calls([name.split(".", 1) for name in names])
        objects = self.extract.objects
        left_out: list[str] = []
        by_field = ""
        if objects is not None:
            if set(objects.leave_out) != set(REASONING):
                left_out = list(objects.leave_out)
            if objects.by_field:
                by_field = "by_field=True, "
        left_out += names
        return f"answer=json_object({by_field}leave_out={json.dumps(left_out)})"

    def _advice_on_calls(self, calls: Sequence[Sequence[str]]) -> str:
        """Return the same for arguments of tools, (tool, argument) each."""
        excluded = self._options.tool_votes.exclude_args
        if isinstance(excluded, Mapping):
            by_tool = {tool: list(arguments) for tool, arguments in excluded.items()}
            for tool, argument in calls:
                by_tool.setdefault(tool, []).append(argument)
            return f"tool_votes=ToolVotes(exclude_args={json.dumps(by_tool)})"
        arguments: list[str] = []
        if set(excluded) != set(REASONING):
            arguments = list(excluded)
        arguments += [argument for _, argument in calls]
        unique = list(dict.fromkeys(arguments))
        return f"tool_votes=ToolVotes(exclude_args={json.dumps(unique)})"


def _is_blank(message: AIMessage, vote: Vote) -> bool:
    """Return whether a complete response states no answer. A response that calls tools
    is never blank.
    """
    if vote.why_none != NO_ANSWER or message.tool_calls or message.invalid_tool_calls:
        return False
    return ending_of(message) == "whole" and not is_refusal(message)
