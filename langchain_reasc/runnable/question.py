"""The state of one input: its samples, and the decision on them, without threads or
event loops.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage

from langchain_reasc.calibration import AnsweredQuestion, AnsweredQuestionListener
from langchain_reasc.complaints import warn_once
from langchain_reasc.exceptions import (
    LogprobsUnavailable,
    ReASCError,
    SamplingError,
    Undecided,
    explains_itself,
    is_control_flow,
    root_of,
    will_recur,
)
from langchain_reasc.method.decision import BLANK, answer_among, joined, share_of_answer
from langchain_reasc.method.never_agrees import rule_in_use
from langchain_reasc.method.stopping import Decision, Response, decide, fewest_further
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.runnable.account import add_account, failure_notices
from langchain_reasc.runnable.ballot import Ballot
from langchain_reasc.runnable.escalation import Escalating
from langchain_reasc.runnable.plan import Plan
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import (
    ReASCResult,
    SampledResponse,
    Usage,
    shortened,
)
from langchain_reasc.runnable.total_budget import Sampled
from langchain_reasc.sampling import Sample

if TYPE_CHECKING:
    from langchain_reasc.runnable.options import Options

logger = logging.getLogger(__name__)

DeservesVote = Callable[[AIMessage], bool | Awaitable[bool]]
"""Whether a first response is put to the vote; one that is not is taken as it is."""
ResponseListener = Callable[[SampledResponse, Decision], None]
SpendingListener = Callable[[int, int], None]
"""Called with the tokens, prompt and generated, and the samples that a question has
cost.
"""
_NOT_AUDITED: Final = (
    "budget",
    "timeout",
    "alone",
    "hopeless",
    "plurality",
    "unanswered",
    "contested",
)
"""Reasons of decisions that no rule has made."""


@dataclass(frozen=True)
class CallBudget:
    """What one call may spend of a budget that it shares with others. The rule does not
    settle for less evidence then.

    Attributes:
        tokens: prompt and generated tokens after which no sample is launched; None for
            any number.
        samples: samples that may be launched; None for ``max_samples``.
        seconds: seconds after which no sample is launched; what is in flight then is
            waited for. None for any time.
        on_spent: called with what the call has cost when it is answered, or fails.
    """

    tokens: int | None = None
    samples: int | None = None
    seconds: float | None = None
    on_spent: SpendingListener | None = None


class Question:
    """Collects the samples of one input in any order, and decides on them in launch
    order.

    Args:
        request: what is asked.
        plan: how it is decided.
        first: a sample that was drawn before.
        on_response: called with each response and the decision after it, in launch
            order.
        deserves_vote: asked of the first response that says anything, which is then
            launched alone; None puts every one to the vote.
        budget: what the call may spend.
        live: the model of a first response whose text is passed on as it comes; None if
            it is not.
        on_finished: called with what can be learned from it, in place of what learns
            online.
    """

    def __init__(
        self,
        request: Request,
        plan: Plan,
        *,
        first: Sample | None = None,
        on_response: ResponseListener | None = None,
        deserves_vote: DeservesVote | None = None,
        budget: CallBudget | None = None,
        live: PreparedModel | None = None,
        on_finished: AnsweredQuestionListener | None = None,
    ) -> None:
        setup, options = request.setup, request.setup.options
        self.request, self.setup, self.model = request, setup, request.model
        self.deserves_vote, self.live, self.passed_on = deserves_vote, live, False
        self._budget = budget or CallBudget()
        self._max_samples = min(
            options.max_samples, self._budget.samples or options.max_samples
        )
        self._on_response, self._on_finished = on_response, on_finished
        if setup.online and on_finished is None:
            self._on_finished = partial(
                setup.online.observe, learned=plan.calibration is not None
            )
        self._ballot = Ballot(
            request,
            plan,
            learning=self._on_finished is not None,
            spans=on_finished is not None,
        )
        self.decide_by(plan)
        unknown = setup.unknown_names(self.model.schemas) if self.model.schemas else []
        self._notices = tuple(
            dict.fromkeys([*self.model.notices, *unknown, *plan.notices])
        )
        self._samples: dict[int, Sample] = {}
        self._lost: list[Sample] = []
        self._responses: dict[int, Response] = {}
        self._next = self._launched = 0
        self._undecided = 0  # responses after each of which the rule did not stop
        self._ended_by: Literal["timeout", "budget"] | None = None
        # Whether one more response is to be compared with the decision of a rule.
        self._to_audit = bool(
            setup.online and plan.calibration and setup.online.audits(options.audit)
        )
        self._audit_index: int | None = None
        self._audit_answers: list[str | None] = []
        self._audit_notices: list[str] = []
        self._reported = False
        self.decision: Decision | None = None
        self.not_voted = False
        self.escalating: Escalating | None = None
        self.beside: list[Question] = []
        """The questions that were put to another model for this one."""
        if first and first.status == "complete":
            self.add_sample(first)
        elif first:  # it is paid for, and drawn again
            self._lost.append(first)

    def decide_by(self, plan: Plan) -> None:
        """Decide by a plan, before any response has come."""
        self.plan = plan
        self._rule_in_use = plan.rule_in_use(self._ballot.extract, self._max_samples)

    @property
    def samples_to_launch(self) -> int:
        """Samples to launch now; 0 once decided or when the budget is spent.

        Raises:
            ReASCError: nothing but failures have come, so that more of the same would
                only cost more.
        """
        launched = len(self._samples)
        if self._ended_by or launched >= self._max_samples:
            return 0
        if self.decision:
            return int(self._to_audit)
        if launched and not self._responses:
            self._check_failures()
        first_alone = launched == 0 and self.plan.rule.may_accept_first
        if first_alone or self.asks:
            return 1
        most = min(self.setup.options.concurrency, self._max_samples - launched)
        return self._useful(min(most, self.plan.rule.wave or most))

    def launch(self, count: int) -> range:
        """Return the indices of the next ``count`` samples."""
        first = len(self._samples)
        if self.decision:
            first = self._audit_index = (
                self.launched
            )  # of those cut off, some may never have come
            self._to_audit = False
        self._launched = first + count
        return range(first, self._launched)

    def add_sample(self, sample: Sample) -> None:
        """Take a sample that has ended, and decide.

        Raises:
            LogprobsUnavailable: confidence is required, and it has none; says so if the
                model was not asked for it.
        """
        self._samples[sample.index] = sample
        while self.decision is None and (following := self._samples.get(self._next)):
            self._next += 1
            if following.status == "complete" and following.message is not None:
                self._decide(following, following.message)
        if self.decision and sample.index == self._audit_index:
            self._compare(sample, self.decision)

    def vote_anyway(self, error: Exception) -> None:
        """Put the first response to the vote, although the user's function failed on
        it.
        """
        if isinstance(error, ReASCError) or is_control_flow(error):
            raise error
        failure = f"{getattr(self.deserves_vote, '__name__', 'when')} failed on a response: {error!r}"
        logger.warning("%s; the response is put to the vote", failure, exc_info=error)
        self._ballot.add_notice(failure)

    def check_limits(self) -> None:
        """Launch no more samples once the question has had its time, or spent its
        budget.
        """
        budget, clock = self._budget, self.request.clock
        if clock.over:
            self._ended_by = "timeout"
        elif (budget.tokens is not None and self.tokens >= budget.tokens) or (
            budget.seconds is not None and clock.seconds >= budget.seconds
        ):
            self._ended_by = "budget"

    def report_spending(self) -> None:
        """Report the cost to the listener once, even if the question failed."""
        if self._budget.on_spent and not self._reported:
            asked = [self, *self.beside]
            self._budget.on_spent(
                sum(one.tokens for one in asked), sum(one.launched for one in asked)
            )
        self._reported = True

    @property
    def asks(self) -> DeservesVote | None:
        """What is asked whether the next response is put to the vote; None once a
        response has said anything.
        """
        said = any(one.instead != "" for one in self._responses.values())
        return None if said else self.deserves_vote

    @property
    def rest_of_budget(self) -> CallBudget | None:
        """What another model may spend on the question; None if its budget or its time
        is over.
        """
        budget, asked = self._budget, [self, *self.beside]
        tokens = budget.tokens and budget.tokens - sum(one.tokens for one in asked)
        samples = budget.samples and budget.samples - sum(one.launched for one in asked)
        over = self._ended_by or self.request.cutoff.given_up
        if (
            over
            or (tokens is not None and tokens <= 0)
            or (samples is not None and samples <= 0)
        ):
            return None
        return CallBudget(tokens, samples, budget.seconds)

    def spent(self) -> tuple[tuple[SampledResponse, ...], Usage]:
        """Return the samples so far, and what they have cost."""
        return self._sampled(
            [sample for _, sample in sorted(self._samples.items())]
        ), self._usage()

    def answer_of(self, message: AIMessage) -> str | None:
        """Return the answer of another model's response, equal to the answers here that
        say the same.
        """
        return answer_among(
            list(self._responses.values()), self._ballot.read_audit(message)
        )

    @property
    def has_response(self) -> bool:
        """Whether a response has come."""
        return bool(self._responses)

    @property
    def launched(self) -> int:
        """Samples launched so far, those given up with an error too."""
        return max(self._launched, len(self._samples))

    @property
    def tokens(self) -> int:
        """Tokens that the samples so far have cost, prompts too, and those of a judge."""
        usage = self._usage()
        return usage.bill["total_tokens"] + (
            usage.judge["total_tokens"] if usage.judge else 0
        )

    def sampled(self, *, ended: bool) -> Sampled:
        """Return what the total budget of a batch needs to know."""
        decision = None if ended else self.decision or self._decided()
        return Sampled(
            decision,
            self.launched,
            max(0, self._max_samples - self.launched),
            self.tokens,
        )

    def result(self) -> ReASCResult:
        """Return the outcome, and learn from it. If budget or time ran out undecided,
        what there is decides.

        Raises:
            SamplingError: no response was obtained.
            Undecided: the evidence is not sufficient, or the answer too unlikely, and
                that is to be raised.
        """
        return concluded(self.outcome(), self.setup.options)

    def outcome(self) -> ReASCResult:
        """Return the outcome, and learn from it, whether or not it is decided.

        Raises:
            SamplingError: no response was obtained.
        """
        first = self._responses.get(0)
        if self.setup.mixture and first is not None and first.score is not None:
            self.setup.mixture.observe(first.score, **self._ballot.provenance)
        samples = [sample for _, sample in sorted(self._samples.items())]
        if not self._responses:
            raise error_without_response(samples)
        decision = self.decision
        if decision is None:
            decision = replace(
                self._decided(), stop=True, reason=self._ended_by or "budget"
            )
        promises = self.plan.promises(
            decision, self._given[0].score if self._given else None
        )
        notices = self._all_notices(decision, samples)
        id = token_hex(8) if self.setup.online and decision.reason != "alone" else None
        if self._on_finished and decision.reason != "alone":
            self._on_finished(self._finished(decision, id, promises))
        usage, responses = self._usage(), self._sampled(samples)
        winner, decision = self._winner(responses, decision)
        answers = [one.answer for one in self._given]
        share = share_of_answer(decision, answers.count(None))
        unsupported = share is not None and share <= self.setup.options.min_share
        merged = decision.whole is not None and decision.answer not in answers
        if merged:
            notices.append(
                "the answer was put together field by field: no response gave it as a "
                "whole"
            )
        figures = {
            **({} if id is None else {"id": id, "kind": self.request.kind}),
            "method": self.plan.rule.name,
            **(
                {}
                if self.request.asked is None
                else {"answered_by": self.request.asked}
            ),
            "samples": decision.samples,
            "launched": len(samples),
            "failed": [one.status for one in samples].count("failed"),
            "without_confidence": len(self._ballot.missing),
            **({"merged": True} if merged else {}),
            **promises,
            "tokens": {**usage.account, "winner": output_tokens(winner)},
        }
        message = add_account(
            winner,
            decision,
            notices,
            usage,
            figures,
            keep_logprobs=self.model.keep_logprobs,
        )
        account = message.response_metadata["reasc"]
        logger.debug(
            "decided after %d of %d samples: %s",
            decision.samples,
            len(samples),
            account,
        )
        return ReASCResult(
            message, decision, responses, usage, tuple(notices), unsupported=unsupported
        )

    def _all_notices(self, decision: Decision, samples: Sequence[Sample]) -> list[str]:
        ballot, given = self._ballot, self._given
        never = ballot.never_agrees_notices(decision) if decision.never_agrees else []
        of_votes = self._audit_notices or ballot.notices(given)
        of_samples = [*ballot.confidence_notices(len(given)), *failure_notices(samples)]
        return [*self._notices, *never, *of_votes, *of_samples]

    def _finished(
        self, decision: Decision, id: str | None, promises: Mapping[str, Any]
    ) -> AnsweredQuestion:
        """Return what can be learned from the question."""
        answers = [*(one.answer for one in self._given), *self._audit_answers]
        p_correct = promises.get("p_correct", {}).get("value")
        return AnsweredQuestion.from_decision(
            answers, self._ballot.readings, decision, id, p_correct, self.request.kind
        )

    def _decide(self, sample: Sample, message: AIMessage) -> None:
        """Read a response, and decide on all so far."""
        if self.not_voted:
            response = Response(None, not_voted=True)
        else:
            try:
                response = self._ballot.read_response(message)
            except LogprobsUnavailable as error:
                if self.model.not_requested is None:
                    raise
                raise LogprobsUnavailable(
                    f"{error}. {self.model.not_requested}"
                ) from error
        self._responses[sample.index] = response
        decision = self._decided()
        if decision.stop:
            self.decision = decision
            self._to_audit = self._to_audit and decision.reason not in _NOT_AUDITED
            if (
                decision.reason == "unanswered" and not self._on_response
            ):  # which is told of it
                warn_once(
                    f"sampling stops: {'; '.join(self._ballot.notices(self._given))}"
                )
        if self._on_response:
            self._on_response(self._sampled([sample])[0], decision)

    def _decided(self) -> Decision:
        """Return the decision on the responses so far."""
        given = self._given
        decision = decide(self._rule_in_use, given, undecided=self._undecided)
        if not decision.stop:
            self._undecided = len(given)
        return decision

    @property
    def _given(self) -> list[Response]:
        """The responses so far, in launch order."""
        return joined(list(self._responses.values()))

    def _useful(self, most: int) -> int:
        """Return how many of so many samples may be needed to decide."""
        if (
            most == 1 or not self.setup.prepared.is_set()
        ):  # to look ahead may take long before that
            return (
                min(most, self.plan.rule.earliest)
                if self.plan.rule.earliest > 1
                else most
            )
        if any(one.answer is not None for one in self._responses.values()):
            return fewest_further(self._rule_in_use, self._given, most)
        try:
            return fewest_further(
                rule_in_use(self.plan.rule, self._max_samples), self._given, most
            )
        except (
            Exception
        ):  # of a user's rule that reads answers, and cannot read one that is made up
            return most

    def _compare(self, sample: Sample, decision: Decision) -> None:
        """Compare the answer of one more response with that of the decision."""
        notices, outcome = self._ballot.notices(self._given), ", and came to nothing"
        if sample.status == "complete" and sample.message is not None:
            try:
                self._audit_answers = [self.answer_of(sample.message)]
                agrees = self._audit_answers == [decision.answer]
                outcome = f": it {'agrees' if agrees else 'does not agree'} with it"
            except Exception as error:  # of a response that nothing rests on
                outcome += f": {error!r}"
        self._audit_notices = [
            *notices,
            f"one more response was paid for to audit this answer{outcome}",
        ]

    def _check_failures(self) -> None:
        """Raise if all samples so far have failed (two or more, or one that will
        recur).
        """
        if len(self._samples) > 1 or will_recur(self._samples[0].error):
            raise error_without_response(
                [sample for _, sample in sorted(self._samples.items())]
            )

    def _winner(
        self, responses: Sequence[SampledResponse], decision: Decision
    ) -> tuple[AIMessage, Decision]:
        """Return the most trusted response that gives the winning answer, and the
        decision it stands for.

        An answer that was put together from several is written into one of them. Where
        that is refused, the best answer that one response gave as a whole has won.
        """
        given = decision.answer if decision.whole is None else decision.whole
        agreeing = [
            response
            for response in responses
            if response.used and response.answer == given
        ]
        used = agreeing or [response for response in responses if response.used]
        alike = Counter(map(_content_without_answer, self._responses.values()))

        def trust(
            one: SampledResponse,
        ) -> tuple[float, bool, int, bool]:  # of those without an answer, what they say
            response = self._responses[one.index]
            content = _content_without_answer(response)
            return (
                one.weight,
                response.not_voted,
                alike[content] if content else 0,
                response.instead != "",
            )

        best = max(used, key=trust)
        winner = (used[0] if self.passed_on and used[0].index == 0 else best).message
        assert winner is not None
        if given == decision.answer or decision.answer is None:
            return winner, decision
        if (together := self._ballot.write_answer(winner, decision.answer)) is not None:
            return together, decision
        return winner, replace(decision, answer=given, whole=None)

    def _sampled(self, samples: Sequence[Sample]) -> tuple[SampledResponse, ...]:
        responses = dict(zip(self._responses, self._given, strict=True))
        weights = dict(
            zip(
                responses, self.plan.rule.weights(list(responses.values())), strict=True
            )
        )
        sampled, unread = [], Response(None)
        for sample in samples:
            response = responses.get(sample.index, unread)
            sampled.append(
                SampledResponse(
                    index=sample.index,
                    message=sample.message,
                    status=sample.status,
                    used=sample.index in self._responses,
                    answer=response.answer,
                    score=response.score,
                    weight=0.0 if response.answer is None else weights[sample.index],
                    output_tokens=output_tokens(sample.message),
                    error=sample.error,
                    asked=self.request.asked,
                )
            )
        return tuple(sampled)

    def _usage(self) -> Usage:
        judged = self._ballot.meanings.judged if self._ballot.meanings else None
        samples, tokens = (
            list(self._samples.values()),
            lambda: self.request.estimated_prompt_tokens,
        )
        return Usage.add_up(
            samples,
            used=self._responses,
            lost=self._lost,
            judged=judged,
            prompt_tokens=tokens,
        )


def _content_without_answer(response: Response) -> str | None:
    """Return what is equal in responses that have content but no answer: refused calls,
    or that they are blank.
    """
    return BLANK if response.blank else response.instead


def concluded(result: ReASCResult, options: "Options") -> ReASCResult:
    """Return a result, or an empty message in its place if it is undecided and the
    options say so.

    Raises:
        Undecided: it is undecided, and that is to be raised.
    """
    if options.abstain_below is not None:
        result = replace(result, doubt=result.doubt_below(options.abstain_below))
    if result.doubt is None and (
        options.on_undecided == "answer" or not result.undecided
    ):
        return result
    if options.on_undecided != "raise":
        return result.abstained()
    given = "" if result.answer is None else f"'{shortened(result.answer)}' is "
    raise Undecided(
        f"{given}{result.summary()}; the error's result has every response", result
    )


def error_without_response(samples: Sequence[Sample]) -> Exception:
    """Build the error for a question with no responses."""
    errors = [sample.error for sample in samples if sample.error is not None]
    if not errors:
        return SamplingError(
            f"all {len(samples)} samples were given up before they had ended"
        )
    first = errors[0]
    if (
        isinstance(first, ReASCError) and type(first) is not SamplingError
    ):  # which says it of one sample
        return first.with_traceback(
            None
        )  # the way through a sample's thread says nothing more
    if all(
        isinstance(error, ContextOverflowError) for error in errors
    ):  # LangChain's summarizing waits for it
        return first
    because = (
        "" if (root := root_of(first)) is first else f" ({type(root).__name__}: {root})"
    )
    failure = SamplingError(
        f"all {len(samples)} samples failed; the first: {first!r}{because}", errors
    )
    if not explains_itself(
        first
    ):  # a fault in somebody's code, which a traceback shows
        failure.__cause__ = first
    return failure
