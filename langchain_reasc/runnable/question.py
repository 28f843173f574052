"""One question: its samples, the votes they cast, the decision on them, and the bill.
Nothing here waits for a model.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex
from typing import Final, Literal

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage

from langchain_reasc.calibration import AnsweredQuestion, AnsweredQuestionListener
from langchain_reasc.complaints import shortened, warn_once
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
from langchain_reasc.method.decision import (
    BLANK,
    answer_among,
    joined,
    share_of_answer,
)
from langchain_reasc.method.never_agrees import rule_in_use
from langchain_reasc.method.stopping import Decision, Response, decide, fewest_further
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import Usage, output_tokens
from langchain_reasc.runnable.account import Account, failure_notices, kept_metadata
from langchain_reasc.runnable.ballot import Ballot
from langchain_reasc.runnable.options import Options
from langchain_reasc.runnable.plan import Plan, Promises
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.total_budget import Sampled
from langchain_reasc.sampling import SampledResponse

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

    Attributes:
        decision: the decision, once the rule has stopped.
        passed_on: whether any text of a response was passed on to the caller.
        not_voted: whether the first response is taken as it is.
    """

    def __init__(
        self,
        request: Request,
        plan: Plan,
        *,
        first: SampledResponse | None = None,
        on_response: ResponseListener | None = None,
        deserves_vote: DeservesVote | None = None,
        budget: CallBudget | None = None,
        live: PreparedModel | None = None,
        on_finished: AnsweredQuestionListener | None = None,
    ) -> None:
        self.request = request
        self.voter = request.voter
        self.model = request.model
        self.deserves_vote = deserves_vote
        self.budget = budget or CallBudget()
        self.live = live
        self.passed_on = False
        self.not_voted = False
        self.decision: Decision | None = None
        self._on_response = on_response
        self._on_finished = on_finished
        online = self.voter.online
        if online is not None and on_finished is None:
            learned = plan.calibration is not None
            self._on_finished = partial(online.observe, learned=learned)
        self._ballot = Ballot(
            request,
            plan,
            keeps_readings=self._on_finished is not None,
            keeps_spans=on_finished is not None,
        )
        self._max_samples = self.voter.options.max_samples
        if self.budget.samples is not None:
            self._max_samples = min(self._max_samples, self.budget.samples)
        self.decide_by(plan)
        self._samples: dict[int, SampledResponse] = {}
        self._lost: list[SampledResponse] = []
        self._responses: dict[int, Response] = {}
        # The same in launch order, with one spelling for equal answers.
        self._joined: list[Response] = []
        self._next = 0
        self._launched = 0
        # Responses after each of which the rule did not stop.
        self._undecided = 0
        self._ended_by: Literal["timeout", "budget"] | None = None
        self._audit = _Audit(self)
        self._is_reported = False
        if first is not None:
            if first.status == "complete":
                self.add_sample(first)
            else:  # it is paid for, and drawn again
                self._lost.append(first)

    def decide_by(self, plan: Plan) -> None:
        """Decide by a plan, before any response has come."""
        self.plan = plan
        self._rule = plan.composed_rule(self._ballot.extract, self._max_samples)

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
            return 1 if self._audit.is_due else 0
        if launched and not self._responses:
            self._check_failures()
        if self.undecided_vote is not None:
            return 1
        wave = min(self.voter.options.concurrency, self._max_samples - launched)
        return self._useful(wave)

    def launch(self, count: int) -> range:
        """Return the indices of the next ``count`` samples."""
        first = len(self._samples)
        if self.decision:
            # Of those that were cut off, some may never have come.
            first = self.launched
            self._audit.begin(first)
        self._launched = first + count
        return range(first, self._launched)

    def add_sample(self, sample: SampledResponse) -> None:
        """Take a sample that has ended, and decide.

        Raises:
            LogprobsUnavailable: confidence is required, and it has none; says so if the
                model was not asked for it.
        """
        self._samples[sample.index] = sample
        while self.decision is None and self._next in self._samples:
            following = self._samples[self._next]
            self._next += 1
            if following.status == "complete" and following.message is not None:
                self._decide(following, following.message)
        if self.decision and sample.index == self._audit.index:
            self._audit.compare(sample, self.decision)

    def vote_anyway(self, error: Exception) -> None:
        """Put the first response to the vote, although the user's function failed on
        it.
        """
        if isinstance(error, ReASCError) or is_control_flow(error):
            raise error
        name = getattr(self.deserves_vote, "__name__", "when")
        failure = f"{name} failed on a response: {error!r}"
        logger.warning("%s; the response is put to the vote", failure, exc_info=error)
        self._ballot.add_notice(failure)

    def check_limits(self) -> None:
        """Launch no more samples once the question has had its time, or spent its
        budget.
        """
        clock = self.request.clock
        if clock.over:
            self._ended_by = "timeout"
            return
        tokens = self.budget.tokens
        seconds = self.budget.seconds
        if (tokens is not None and self.tokens >= tokens) or (
            seconds is not None and clock.seconds >= seconds
        ):
            self._ended_by = "budget"

    def report_spending(self) -> None:
        """Report the cost to the listener once, even if the question failed."""
        if self.budget.on_spent is not None and not self._is_reported:
            self.budget.on_spent(self.tokens, self.launched)
        self._is_reported = True

    @property
    def undecided_vote(self) -> DeservesVote | None:
        """What is asked whether the next response is put to the vote; None once a
        response has said anything.
        """
        if any(response.instead != "" for response in self._responses.values()):
            return None
        return self.deserves_vote

    @property
    def is_over(self) -> bool:
        """Whether the budget or the time ended sampling, or the call was given up."""
        return self._ended_by is not None or self.request.cutoff.given_up

    def answer_of(self, message: AIMessage) -> str | None:
        """Return the answer of another model's response, equal to the answers here that
        say the same.
        """
        response = self._ballot.read_audit(message)
        return answer_among(list(self._responses.values()), response)

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
        """Tokens that the samples so far have cost, prompts too, and those of a
        judge.
        """
        return self.usage.total_tokens

    def sampled(self, *, ended: bool) -> Sampled:
        """Return what the total budget of a batch needs to know."""
        decision = None
        if not ended:
            decision = self.decision or self._decided()
        remaining = max(0, self._max_samples - self.launched)
        return Sampled(decision, self.launched, remaining, self.tokens)

    def outcome(self) -> ReASCResult:
        """Return the outcome, and learn from it, whether or not it is decided. If
        budget or time ran out undecided, what there is decides.

        Raises:
            SamplingError: no response was obtained.
        """
        self._observe_first()
        if not self._responses:
            raise error_without_response(self._in_order)
        decision = self.decision
        if decision is None:
            reason = self._ended_by or "budget"
            decision = replace(self._decided(), stop=True, reason=reason)
        responses = self._joined
        promises = self.plan.promises(decision, responses[0].score)
        hopeless = self._ballot.hopeless_notice(decision)
        notices = self._all_notices(hopeless)
        id = None
        if self.voter.online is not None and decision.reason != "alone":
            id = token_hex(8)
        if self._on_finished is not None and decision.reason != "alone":
            self._on_finished(self._finished(decision, id, promises))
        sampled = self.sampled_responses
        winner, decision = self._winner(sampled, decision)
        answers = [response.answer for response in responses]
        share = share_of_answer(decision, answers.count(None))
        min_share = self.voter.options.min_share
        is_merged = decision.whole is not None and decision.answer not in answers
        if is_merged:
            notices.append(
                "the answer was put together field by field: no response gave it as a "
                "whole"
            )
        account = Account(
            method=self.plan.rule.name,
            launched=len(sampled),
            failed=sum(response.status == "failed" for response in sampled),
            without_confidence=len(self._ballot.missing),
            output_of_winner=output_tokens(winner),
            id=id,
            kind="" if id is None else self.request.kind,
            answered_by=self.request.role,
            is_merged=is_merged,
            probabilities=promises.probabilities,
            guarantee=promises.guarantee,
        )
        metadata = kept_metadata(winner, logprobs=self.model.keep_logprobs)
        result = ReASCResult(
            winner.model_copy(update={"response_metadata": metadata}),
            decision,
            sampled,
            self.usage,
            account,
            tuple(notices),
            unsupported=share is not None and share <= min_share,
            hopeless=hopeless,
        )
        logger.debug(
            "decided after %d of %d samples: %s",
            decision.samples,
            len(sampled),
            account,
        )
        return result

    @property
    def usage(self) -> Usage:
        """What the samples so far have cost."""
        used = []
        unused = [sample.message for sample in self._lost if sample.message is not None]
        for sample in self._samples.values():
            if sample.message is None:
                continue
            if sample.index in self._responses:
                used.append(sample.message)
            else:
                unused.append(sample.message)
        judged = None
        if self._ballot.meanings is not None:
            judged = self._ballot.meanings.judged
        return Usage.add_up(
            used,
            unused,
            judged=judged,
            prompt_tokens=lambda: self.request.estimated_prompt_tokens,
        )

    def _observe_first(self) -> None:
        """Learn a mixture from the score of the first response."""
        first = self._responses.get(0)
        mixture = self.voter.mixture
        if mixture is not None and first is not None and first.score is not None:
            mixture.observe(first.score, **self._ballot.provenance)

    def _all_notices(self, hopeless: str | None) -> list[str]:
        """Return what the caller should know: of the model, the rule, the votes, the
        confidences and the samples.
        """
        responses = self._joined
        schemas = self.model.schemas
        unknown = self.voter.unknown_names(schemas) if schemas else []
        notices = [*self.model.notices, *unknown, *self.plan.notices]
        notices = list(dict.fromkeys(notices))
        if hopeless is not None:
            notices.append(hopeless)
        notices += self._audit.notices or self._ballot.notices(responses)
        notices += self._ballot.confidence_notices(len(responses))
        notices += failure_notices(self._in_order)
        return notices

    def _finished(
        self, decision: Decision, id: str | None, promises: Promises
    ) -> AnsweredQuestion:
        """Return what can be learned from the question."""
        answers = [response.answer for response in self._joined]
        answers += self._audit.answers
        return AnsweredQuestion.from_decision(
            answers,
            self._ballot.readings,
            decision,
            id,
            promises.probabilities.get("p_correct"),
            self.request.kind,
        )

    def _decide(self, sample: SampledResponse, message: AIMessage) -> None:
        """Read a response, and decide on all so far."""
        self._responses[sample.index] = self._read(message)
        self._joined = joined(list(self._responses.values()))
        decision = self._decided()
        if decision.stop:
            self.decision = decision
            if decision.reason in _NOT_AUDITED:
                self._audit.is_due = False
            if decision.reason == "unanswered":
                notices = "; ".join(self._ballot.notices(self._joined))
                warn_once(f"sampling stops: {notices}")
        if self._on_response is not None:
            self._on_response(self._with_votes([sample])[0], decision)

    def _read(self, message: AIMessage) -> Response:
        if self.not_voted:
            return Response(None, not_voted=True)
        try:
            return self._ballot.read_response(message)
        except LogprobsUnavailable as error:
            if self.model.not_requested is None:
                raise
            text = f"{error}. {self.model.not_requested}"
            raise LogprobsUnavailable(text) from error

    def _decided(self) -> Decision:
        """Return the decision on the responses so far."""
        responses = self._joined
        decision = decide(self._rule, responses, undecided=self._undecided)
        if not decision.stop:
            self._undecided = len(responses)
        return decision

    @property
    def _in_order(self) -> list[SampledResponse]:
        return [sample for _, sample in sorted(self._samples.items())]

    def _useful(self, wave: int) -> int:
        """Return how many of so many samples may be needed to decide."""
        rule = self.plan.rule
        if not self._samples and rule.first_wave is not None:
            wave = min(wave, rule.first_wave)
        if wave == 1 or not self.voter.prepared.is_set():
            # To look ahead may take long before that.
            return wave
        responses = self._joined
        if any(response.answer is not None for response in responses):
            return fewest_further(self._rule, responses, wave)
        try:
            rule = rule_in_use(rule, self._max_samples)
            return fewest_further(rule, responses, wave)
        except Exception:
            # Of a user's rule that reads answers, and cannot read one that is made up.
            return wave

    def _check_failures(self) -> None:
        """Raise if all samples so far have failed (two or more, or one that will
        recur).
        """
        if len(self._samples) > 1 or will_recur(self._samples[0].error):
            raise error_without_response(self._in_order)

    def _winner(
        self, sampled: Sequence[SampledResponse], decision: Decision
    ) -> tuple[AIMessage, Decision]:
        """Return the most trusted response that gives the winning answer, and the
        decision it stands for.

        An answer that was put together from several is written into one of them. Where
        that is refused, the best answer that one response gave as a whole has won.
        """
        answer = decision.answer if decision.whole is None else decision.whole
        used = [response for response in sampled if response.used]
        agreeing = [response for response in used if response.answer == answer]
        candidates = agreeing or used
        contents = Counter(
            _content_without_answer(response) for response in self._responses.values()
        )

        def trust(candidate: SampledResponse) -> tuple[float, bool, int, bool]:
            response = self._responses[candidate.index]
            # Of those without an answer, what most of them say.
            content = _content_without_answer(response)
            alike = contents[content] if content else 0
            says_something = response.instead != ""
            return candidate.weight, response.not_voted, alike, says_something

        best = max(candidates, key=trust)
        if self.passed_on and candidates[0].index == 0:
            best = candidates[0]
        winner = best.message
        assert winner is not None
        if answer == decision.answer or decision.answer is None:
            return winner, decision
        together = self._ballot.write_answer(winner, decision.answer)
        if together is not None:
            return together, decision
        return winner, replace(decision, answer=answer, whole=None)

    @property
    def sampled_responses(self) -> tuple[SampledResponse, ...]:
        """The samples so far, in launch order, with the votes that were read of them."""
        return tuple(self._with_votes(self._in_order))

    def _with_votes(self, samples: Sequence[SampledResponse]) -> list[SampledResponse]:
        responses = self._joined
        weights = self.plan.rule.weights(responses)
        votes = dict(
            zip(self._responses, zip(responses, weights, strict=True), strict=True)
        )
        role = self.request.role
        voted = []
        for sample in samples:
            if sample.index not in votes:
                voted.append(replace(sample, asked=role))
                continue
            response, weight = votes[sample.index]
            voted.append(
                replace(
                    sample,
                    used=True,
                    answer=response.answer,
                    score=response.score,
                    weight=0.0 if response.answer is None else weight,
                    asked=role,
                )
            )
        return voted


class _Audit:
    """One more response, which is compared with the decision of a learned rule.

    Attributes:
        is_due: whether it is to be drawn once the rule has decided.
        index: its place in launch order, once it is drawn.
        answers: its answer, once it has come.
        notices: what the caller should know, with those of the votes; empty before.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        online = question.voter.online
        self.is_due = (
            online is not None
            and question.plan.calibration is not None
            and online.audits(question.voter.options.audit)
        )
        self.index: int | None = None
        self.answers: list[str | None] = []
        self.notices: list[str] = []

    def begin(self, index: int) -> None:
        """Note that it is drawn now."""
        self.index = index
        self.is_due = False

    def compare(self, sample: SampledResponse, decision: Decision) -> None:
        """Compare its answer with that of the decision."""
        ballot = self._question._ballot
        notices = ballot.notices(self._question._joined)
        outcome = ", and came to nothing"
        if sample.status == "complete" and sample.message is not None:
            try:
                answer = self._question.answer_of(sample.message)
            except Exception as error:  # of a response that nothing rests on
                outcome += f": {error!r}"
            else:
                self.answers = [answer]
                verb = "agrees" if answer == decision.answer else "does not agree"
                outcome = f": it {verb} with it"
        notice = f"one more response was paid for to audit this answer{outcome}"
        self.notices = [*notices, notice]


def _content_without_answer(response: Response) -> str | None:
    """Return what is equal in responses that have content but no answer: refused calls,
    or that they are blank.
    """
    return BLANK if response.blank else response.instead


def concluded(result: ReASCResult, options: Options) -> ReASCResult:
    """Return a result, or an empty message in its place if it is undecided and the
    options say so.

    Raises:
        Undecided: it is undecided, and that is to be raised.
    """
    if options.abstain_below is not None:
        result = replace(result, doubt=result.doubt_below(options.abstain_below))
    is_accepted = options.on_undecided == "answer" or not result.undecided
    if result.doubt is None and is_accepted:
        return result
    if options.on_undecided != "raise":
        return result.abstained()
    answer = ""
    if result.answer is not None:
        answer = f"'{shortened(result.answer)}' is "
    raise Undecided(
        f"{answer}{result.summary()}; the error's result has every response", result
    )


def error_without_response(samples: Sequence[SampledResponse]) -> Exception:
    """Build the error for a question with no responses."""
    errors = [sample.error for sample in samples if sample.error is not None]
    if not errors:
        return SamplingError(
            f"all {len(samples)} samples were given up before they had ended"
        )
    first = errors[0]
    if isinstance(first, ReASCError) and type(first) is not SamplingError:
        # The error says it of one sample. The way through its thread says nothing more.
        return first.with_traceback(None)
    if all(isinstance(error, ContextOverflowError) for error in errors):
        # LangChain's summarizing waits for it.
        return first
    because = ""
    root = root_of(first)
    if root is not first:
        because = f" ({type(root).__name__}: {root})"
    failure = SamplingError(
        f"all {len(samples)} samples failed; the first: {first!r}{because}", errors
    )
    # a fault in somebody's code, which a traceback shows
    if not explains_itself(first):
        failure.__cause__ = first
    return failure
