"""A small model before a large one: which of the two is asked, and one result of both
models' responses.

The small model answers, unless its votes are contested. What is learned from questions
that both were asked says which of its answers may stand.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_reasc.answers import is_refusal
from langchain_reasc.calibration import (
    DEFAULT_RACE,
    Calibration,
    Course,
    EscalationLearner,
    LearnedEscalation,
    Shadowed,
    numbered,
)
from langchain_reasc.exceptions import (
    ConfigurationError,
    FingerprintMismatch,
    is_control_flow,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Reason
from langchain_reasc.method.stopping import Cap, StoppingRule
from langchain_reasc.models.fingerprint import check_fingerprint
from langchain_reasc.models.settings import without_cache_marks
from langchain_reasc.models.usage import Usage
from langchain_reasc.runnable.account import (
    FailedModel,
    ModelAccount,
    named_votes,
)
from langchain_reasc.runnable.failures import both_failed, is_wrong_call, log_failure
from langchain_reasc.runnable.history import Role
from langchain_reasc.runnable.options import Escalation, Online, Options, Prices
from langchain_reasc.runnable.plan import Plan
from langchain_reasc.runnable.question import CallBudget, DeservesVote, Question
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult, SampledResponse
from langchain_reasc.runnable.solve import Solving, begin, solve
from langchain_reasc.runnable.voter import Voter
from langchain_reasc.threads import in_event_loop

logger = logging.getLogger(__name__)

Grade = Callable[[AIMessage], bool]
"""Returns whether a response is right."""
_ROLES: Final[tuple[Role, ...]] = ("small", "large")
ASKED_ONCE: Final[Mapping[str, Any]] = {
    "escalate_to": None,
    "rule": Cap(1),
    "max_samples": 1,
    "calibration": None,
    "confidence": None,
    "fixed_prompt": None,
    "abstain_below": None,
    "on_undecided": "answer",
    "min_share": 0.0,
}
"""The options of a large model that is asked once, where they differ from those of the
small one.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class LargeModel:
    """How the large model is asked.

    Attributes:
        voter: asks it once, or votes, if a ReASC model was given.
        is_asked_once: which of these.
        arguments: the arguments of its calls that were bound to it.
        config: the config that was bound to it.
    """

    voter: Voter
    is_asked_once: bool
    arguments: Mapping[str, Any]
    config: RunnableConfig

    @classmethod
    def asked_once(
        cls, options: Options, model: Runnable[LanguageModelInput, Any], *, quiet: bool
    ) -> "LargeModel":
        """Prepare a chat model that is asked once, with the options of the small one.

        Raises:
            ReASCError: the model cannot be sampled.
        """
        fields = {name: getattr(options, name) for name in Options.model_fields}
        fields |= ASKED_ONCE
        fields["model"] = model
        voter = Voter.from_options(Options(**fields), model, quiet=quiet)
        voter.check(quiet=quiet)
        return cls(voter=voter, is_asked_once=True, arguments={}, config={})


@dataclass(frozen=True, kw_only=True, eq=False)
class Cascade:
    """A small model, the large one behind it, and what is known of the two.

    Attributes:
        small: the small model.
        large: the large model.
        prices: of a million prompt tokens and a million generated tokens, of the small
            and of the large model.
        learner: what learns from questions that both models are asked; None if nothing
            is learned.
        known: what a calibration says of the two; None without one.
    """

    small: Voter
    large: LargeModel
    prices: Prices
    learner: EscalationLearner | None = None
    known: LearnedEscalation | None = None

    @classmethod
    def from_options(
        cls, options: Options, small: Voter, large: LargeModel
    ) -> "Cascade":
        """Put a small model before a large one.

        Raises:
            ConfigurationError: an option contradicts ``escalate_to``.
            FingerprintMismatch: the calibration was made with another large model.
        """
        escalation = options.escalation
        assert escalation is not None
        _check_options(options, small)
        calibration = small.calibration
        learner = None
        known = None
        if calibration and calibration.escalation and options.rule is None:
            known = calibration.escalation
            _check_promise(known, escalation)
            _check_large_model(calibration, options, large.voter)
        elif options.online is not None:
            learner = _learner(
                options, options.online, escalation.promise, small, large.voter
            )
        return cls(
            small=small,
            large=large,
            prices=escalation.token_prices,
            learner=learner,
            known=known,
        )

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use."""
        if self.learner is not None:
            return self.learner.calibration
        return self.small.calibration

    @property
    def measure(self) -> Measure | None:
        """How the first response of the small model is scored; None if no rule reads
        that.
        """
        if self.learner is not None:
            return self.learner.measure
        calibration = self.small.calibration
        if self.known is None or calibration is None or not self.known.scored:
            return None
        return calibration.measure

    def learning_with(
        self, learner: object, *, other_answers: bool = False
    ) -> "Cascade":
        """Return a copy that learns with another learner, if that learns of the same;
        else this one. See :meth:`Voter.learning_with`.
        """
        if self.learner is None or not isinstance(learner, EscalationLearner):
            return self
        if not other_answers and self.learner.learns_of != learner.learns_of:
            return self
        return replace(self, learner=learner)

    def with_classes(self, classes: Mapping[str, type[Any]]) -> "Cascade":
        """Return a copy whose models check calls of tools by these classes, by name."""
        large = replace(self.large, voter=self.large.voter.with_classes(classes))
        return replace(self, small=self.small.with_classes(classes), large=large)

    def held_to(self, schema: Any) -> "Cascade":
        """Return a copy whose models are held to a schema, unless they have one."""
        large = replace(self.large, voter=self.large.voter.held_to(schema))
        return replace(self, small=self.small.held_to(schema), large=large)

    def plan_by(self, rule: StoppingRule) -> Plan:
        """Return the plan by which the small model is asked, by a rule that was learned
        or is tested.
        """
        is_counted = self.measure is None
        return self.small.plan_by(rule, measure=self.measure, is_counted=is_counted)

    def course(self, kind: str) -> Course | None:
        """Return how the next question of a kind is answered; None if no rule was
        learned, and the plan decides.
        """
        if self.learner is not None:
            return self.learner.course(kind, self.small.options.audit)
        if self.known is None:
            return None
        rule = None
        if self.known.rule is not None:
            rule = self.known.rule_named(self.known.rule)
        return Course(rule, known=self.known)

    def request_to_large(
        self, request: Request, arguments: Mapping[str, Any] | None = None
    ) -> Request:
        """Return a request as it is put to the large model, in what is left of the
        time.

        Args:
            request: what is asked of the small model.
            arguments: the arguments of the call, which are passed to the large model as
                far as it understands them; None for those of the request.
        """
        if arguments is None:
            arguments = request.arguments
        config = request.config
        if self.large.config:
            config = merge_configs(self.large.config, config)
        model = self.large.voter.model.resolved(config)
        settings = request.model.settings_for(model, arguments)
        messages = request.history
        if not request.model.shares_client_with(model):
            messages = without_cache_marks(messages)
        large = Request(
            self.large.voter,
            messages,
            config,
            {**self.large.arguments, **settings},
            is_async=request.is_async,
            cutoff=request.cutoff,
            role="large",
        )
        large.clock = request.clock
        return large

    def cost(self, usage: UsageMetadata, role: Role) -> float:
        """Return what tokens cost: in dollars, or in tokens of the small model if only
        the ratio of prices is known.
        """
        prompt, generated = self.prices[role == "large"]
        dollars = usage["input_tokens"] * prompt + usage["output_tokens"] * generated
        return dollars / 1e6


Solver = Voter | Cascade
"""What answers questions: one model, or two."""


async def start(
    solver: Solver,
    request: Request,
    *,
    large_arguments: Mapping[str, Any] | None = None,
    deserves_second_vote: DeservesVote | None = None,
    **options: Any,
) -> Solving:
    """Begin to solve a question.

    Args:
        solver: one model, or two.
        request: what is asked of the only model, or of the small one.
        large_arguments: the arguments of the call for the large model; None for those
            of the request.
        deserves_second_vote: asked of the first response of the model that is asked
            second, in place of ``deserves_vote``, which was asked before.
        **options: the options of :func:`~langchain_reasc.runnable.solve.begin`.
    """
    if not isinstance(solver, Cascade):
        return Solving(await begin(request, **options))
    course = None
    if solver.learner is not None:
        course = await request.run(partial(solver.course, request.kind))
    else:
        course = solver.course(request.kind)
    calibration = solver.small.calibration
    if solver.known is not None and calibration is not None:
        solver.small.require_fit(calibration, request.model, request.messages)
    solving = Escalating(
        solver,
        request,
        course,
        large_arguments=large_arguments,
        deserves_second_vote=deserves_second_vote,
        **options,
    )
    await solving.begin()
    return solving


async def row_of_both(
    cascade: Cascade, request: Request, grade: Grade | None = None
) -> Shadowed | None:
    """Ask both models a question, to learn from both.

    Args:
        cascade: the models, and what learns.
        request: what is asked of the small model.
        grade: returns whether a response is right, if that is known.

    Returns:
        The row; None if time and budget did not suffice to play it to its end.
    """
    assert cascade.learner is not None
    solving = Escalating(cascade, request, Course(shadowed=True))
    await solving.begin()
    result = await Solving(solving.question).answer()
    solving.results["large"] = [result]
    kind = request.kind
    if grade is not None:
        kind = labelled_kind(kind)
    return await solving.shadow(cascade.learner.known(kind), grade)


def labelled_kind(kind: str) -> str:
    """Return the kind of a request with a right answer, which counts other
    contradictions.
    """
    return f"{kind} labelled"


class Escalating(Solving):
    """A question that is being solved by two models.

    Args:
        cascade: the models.
        request: what is asked of the small model.
        course: what was learned of how to answer it; None if nothing is learned.
        large_arguments: the arguments of the call for the large model.
        deserves_second_vote: see :func:`start`.
        budget: what both may spend.
        **options: the other options of both questions, such as who listens.

    Attributes:
        results: the results of each model that was asked, in the order of asking.
    """

    def __init__(
        self,
        cascade: Cascade,
        request: Request,
        course: Course | None,
        *,
        large_arguments: Mapping[str, Any] | None = None,
        deserves_second_vote: DeservesVote | None = None,
        budget: CallBudget | None = None,
        **options: Any,
    ) -> None:
        self._cascade = cascade
        self._request = request
        self._course = course
        self._large_arguments = large_arguments
        self._deserves_second_vote = deserves_second_vote
        self._budget = budget or CallBudget()
        self._options = options
        self._questions: list[Question] = []
        self._is_reported = False
        self.results: dict[Role, list[ReASCResult]] = {}
        self._failed: dict[Role, Exception] = {}

    async def begin(self) -> None:
        """Begin with the small model, or with the large one: alone, or to learn from
        both.
        """
        course = self._course
        budget = replace(self._budget, on_spent=None)
        if course is None:
            await self._ask("small", budget, **self._options)
        elif course.rule is not None and not course.shadowed:
            plan = self._cascade.plan_by(course.rule)
            await self._ask("small", budget, **self._options, plan=plan)
        else:
            await self._ask("large", budget, **self._options)
        self.question = self._questions[0]

    @property
    def options(self) -> Options:
        """The options of the small model."""
        return self._cascade.small.options

    async def outcome(self) -> ReASCResult:
        """Answer with the small model, unless it is contested, or the large one, unless
        it fails.

        Raises:
            Exception: the error of the large model, if the small one has no answer, or
                with ``on_undecided="raise"``; of either model, if the call itself is
                wrong.
        """
        await self._solve(self.question)
        if self._first == "large":
            if "large" in self._failed and self.options.on_undecided != "raise":
                await self._ask_instead_of_large()
            return await self._with_large()
        budget = self._rest_of_budget()
        error = self._failed.get("small")
        if error is None and not self._is_contested(self.results["small"][0]):
            return self._joined("small", self._notices, promise=self._promise)
        if budget is None:
            if error is not None:
                raise error
            notice = "the large model was not asked: the budget or the time is over"
            return self._joined("small", [notice, *self._notices])
        await self._solve(await self._ask_beside("large", budget, **self._options))
        return await self._with_large()

    async def shadow(
        self, known: LearnedEscalation, grade: Grade | None = None
    ) -> Shadowed | None:
        """Ask the small model what the large one has answered, to learn from both.

        Args:
            known: what is known of the two.
            grade: returns whether a response is right, if that is known.

        Returns:
            The row, if time and budget suffice to play it to its end.
        """
        budget = self._rest_of_budget()
        if budget is None:
            return None
        [of_large] = self.results["large"]
        plan = self._cascade.plan_by(DEFAULT_RACE)
        small = await self._ask_beside("small", budget, plan=plan)
        answer = None
        if of_large.answer is not None:
            read = partial(small.answer_of, of_large.message)
            answer = await self._request.read(read)
        small.decide_by(self._cascade.plan_by(known.shadow_rule(answer)))
        await self._solve(small)
        if "small" in self.results:
            [of_small] = self.results["small"]
            if of_small.decision.reason not in ("unanimous", "contested"):
                return None
        read_row = partial(self._row, small, grade)
        row = await self._request.run(read_row)
        budget = self._rest_of_budget()
        if known.asks_again(row) and budget is not None:
            await self._solve(await self._ask_beside("large", budget))
            self._failed.pop("large", None)
            if len(self.results["large"]) > 1:
                row = await self._request.run(read_row)
        if "small" in self.results:
            # A judge may have compared the answers since.
            [of_small] = self.results["small"]
            self.results["small"] = [replace(of_small, usage=small.usage)]
        self._failed.pop("small", None)
        return row

    def goes_on_after(self, error: Exception) -> bool:
        """Return whether the other model may answer, although sampling failed."""
        return _other_may_answer(self.question, error)

    def report_spending(self) -> None:
        """Report the cost of both models once, even if the question failed."""
        if self._budget.on_spent is not None and not self._is_reported:
            tokens = sum(question.tokens for question in self._questions)
            samples = sum(question.launched for question in self._questions)
            self._budget.on_spent(tokens, samples)
        self._is_reported = True

    @property
    def _first(self) -> Role | None:
        """The model that was asked first."""
        return self.question.request.role

    async def _ask(self, role: Role, budget: CallBudget, **options: Any) -> Question:
        """Begin the question with one of the models."""
        request = self._request
        if role == "large":
            request = self._cascade.request_to_large(request, self._large_arguments)
        question = await begin(request, budget=budget, **options)
        self._questions.append(question)
        return question

    async def _ask_beside(
        self, role: Role, budget: CallBudget, **options: Any
    ) -> Question:
        """Begin the question with another model, in what is left of the budget. Nothing
        of it is passed on as it comes.
        """
        options["live"] = None
        if "deserves_vote" in options:
            options["deserves_vote"] = self._deserves_second_vote
        return await self._ask(role, budget, **options)

    async def _solve(self, question: Question) -> None:
        """Keep the outcome of a question, or what every sample failed with."""
        role = question.request.role
        assert role is not None
        try:
            result = await solve(question)
        except Exception as error:
            if not _other_may_answer(question, error):
                raise
            self._failed[role] = error
        else:
            self.results.setdefault(role, []).append(result)

    async def _ask_instead_of_large(self) -> None:
        """Ask the small model, as the large one failed."""
        budget = self._rest_of_budget()
        if budget is None:
            return
        plan = self._cascade.small.plan_by(DEFAULT_RACE)
        question = await self._ask_beside("small", budget, **self._options, plan=plan)
        await self._solve(question)

    async def _with_large(self) -> ReASCResult:
        """Return the result once the large model was asked."""
        failed_small = self._failed.get("small")
        failed_large = self._failed.get("large")
        origin = self._cascade.large.voter.model.origin
        if failed_large is not None:
            if failed_small is not None:
                raise both_failed(failed_small, failed_large)
            if "small" not in self.results or self.options.on_undecided == "raise":
                raise failed_large
            log_failure(origin, "large", failed_large)
            return self._joined(
                "small", self._notices, failed=FailedModel("large", failed_large)
            )
        failed: FailedModel | None = None
        if failed_small is not None:
            log_failure(origin, "small", failed_small)
            failed = FailedModel("small", failed_small)
        await self._learn()
        return self._joined(
            "large", self._notices, promise=self._promise, failed=failed
        )

    async def _learn(self) -> None:
        """Learn from both models, if the question was chosen for that."""
        course = self._course
        if course is None or course.known is None or not course.shadowed:
            return
        if self.results["large"][0].decision.reason == "alone":
            return
        try:
            row = await self.shadow(course.known)
            learner = self._cascade.learner
            if row is not None and learner is not None:
                observe = partial(learner.observe, self._request.kind, row)
                await self._request.run(observe)
        except Exception as error:  # of what the answer does not rest on
            if is_control_flow(error) or self._request.cutoff.given_up:
                raise
            logger.warning("a question could not be learned from", exc_info=error)

    def _is_contested(self, result: ReASCResult) -> bool:
        """Return whether the small model's result sends the question to the large
        one.
        """
        if result.decision.reason == "alone":
            return is_refusal(result.winner)
        below = self.options.abstain_below
        is_doubted = below is not None and result.doubt_below(below) is not None
        return result.undecided or is_doubted

    def _rest_of_budget(self) -> CallBudget | None:
        """Return what another model may spend on the question; None if its budget or
        its time is over.
        """
        if self.question.is_over:
            return None
        tokens = self._budget.tokens
        if tokens is not None:
            tokens -= sum(question.tokens for question in self._questions)
        samples = self._budget.samples
        if samples is not None:
            samples -= sum(question.launched for question in self._questions)
        if (tokens is not None and tokens <= 0) or (
            samples is not None and samples <= 0
        ):
            return None
        return CallBudget(tokens, samples, self._budget.seconds)

    @property
    def _notices(self) -> Sequence[str]:
        """Why the large model answers alone, or how far learning is; empty if a rule
        decides.
        """
        known = self._course.known if self._course else None
        if known is None or known.rule is not None:
            return []
        return [known.status]

    @property
    def _promise(self) -> str | None:
        """What the rule that decides promises; None without one."""
        known = self._course.known if self._course else None
        if known is None or known.rule is None:
            return None
        return known.promise(known.rule)

    def _row(self, small: Question, grade: Grade | None) -> Shadowed:
        """Return the row of a question that both models were asked."""
        of_large = self.results["large"]
        responses: Sequence[SampledResponse] = ()
        cost = 0.0
        if "small" in self.results:
            [of_small] = self.results["small"]
            responses = of_small.responses
            bill = of_small.usage.bill
            cost = self._cascade.cost(bill, "small") / len(responses)
        used = [response for response in responses if response.used]
        right = None
        if grade is not None:
            message = used[0].message if used else None
            is_small_right = message is not None and grade(message)
            right = is_small_right, grade(of_large[0].message)
        answers: list[str | None] = []
        for result in of_large:
            answer = None
            if result.answer is not None:
                answer = small.answer_of(result.message)
            answers.append(answer)
        answers += [response.answer for response in used] or [None]
        numbers = numbered(answers)
        return Shadowed(
            small=numbers[len(of_large) :],
            large=numbers[: len(of_large)],
            score=used[0].score if used else None,
            right=right,
            costs=(cost, self._cascade.cost(of_large[0].usage.bill, "large")),
        )

    def _joined(
        self,
        answered_by: Role,
        notices: Sequence[str],
        *,
        promise: str | None = None,
        failed: FailedModel | None = None,
    ) -> ReASCResult:
        """Return one result of both models' results, with both bills.

        Args:
            answered_by: the model whose answer counts.
            notices: what else the caller should know.
            promise: what the rule that decided promises.
            failed: the model that the other one answers for.
        """
        result = self.results[answered_by][0]
        decision = result.decision
        is_shadowed = self._first == "large" and {*self.results} == {"small", "large"}
        if answered_by == "large":
            is_after_small = "small" in self.results and not is_shadowed
            reason = self._reason(result, is_after_small=is_after_small)
            decision = replace(decision, reason=reason)
        if decision.reason == "alone":  # such responses were never compared
            promise = None
        drawn: list[SampledResponse] = []
        others: list[Usage] = []
        for responses, usage in self._spent():
            if usage is not result.usage:
                others.append(usage)
                responses = [
                    replace(response, used=False, weight=0.0) for response in responses
                ]
            for response in responses:
                drawn.append(replace(response, index=len(drawn)))
        account = replace(
            result.account,
            launched=len(drawn),
            failed=sum(response.status == "failed" for response in drawn),
            answered_by=answered_by,
            is_shadowed=answered_by == "large" and is_shadowed,
            models=self._models(),
            failed_model=failed,
        )
        if decision.reason == "escalated" and self._first == "small":
            # The rule of the small model sent the question to the large one.
            account = replace(account, method=self.question.plan.rule.name)
        if promise is not None:
            account = replace(account, guarantee=promise)
        notices = [*notices, *result.notices]
        if failed is not None:
            notices.insert(0, f"{failed.notice}: {failed.error!r}")
        return replace(
            result,
            decision=decision,
            responses=tuple(drawn),
            usage=Usage.of_two_models(result.usage, others),
            account=account,
            notices=tuple(notices),
        )

    def _reason(self, result: ReASCResult, *, is_after_small: bool) -> Reason | None:
        """Return why the large model's answer is the result; its own reason if its
        votes are undecided.
        """
        decision = result.decision
        if decision.reason == "alone":
            return "escalated" if is_after_small else "alone"
        if self._cascade.large.is_asked_once:
            return "unanswered" if decision.answer is None else "escalated"
        return decision.reason if decision.undecided else "escalated"

    def _spent(
        self, role: Role | None = None
    ) -> list[tuple[Sequence[SampledResponse], Usage]]:
        """Return the samples of each question, and their cost; of one model, or of
        both.
        """
        spent: list[tuple[Sequence[SampledResponse], Usage]] = []
        for asked, results in self.results.items():
            if role in (None, asked):
                spent += [(result.responses, result.usage) for result in results]
        for asked in _ROLES:
            for question in self._questions:
                is_lost = question.request.role == asked and not question.has_response
                if is_lost and role in (None, asked):
                    spent.append((question.sampled_responses, question.usage))
        return spent

    def _models(self) -> dict[str, ModelAccount]:
        """Return what each model answered, and what it cost."""
        models: dict[str, ModelAccount] = {}
        for role in _ROLES:
            spent = self._spent(role)
            if not spent:
                continue
            answer = None
            evidence: Mapping[str, float] = {}
            reason: str | None = "failed"
            if role in self.results:
                decision = self.results[role][0].decision
                votes = named_votes(decision)
                answer = votes["answer"]
                evidence = votes["evidence"]
                reason = decision.reason
                is_once = role == "large" and self._cascade.large.is_asked_once
                if is_once and answer is not None:
                    reason = "answered"
            models[role] = ModelAccount(
                answer=answer,
                evidence=evidence,
                reason=reason,
                launched=sum(len(responses) for responses, _ in spent),
                input=sum(usage.input_tokens for _, usage in spent),
                output=sum(usage.output_tokens for _, usage in spent),
                cost=sum(self._cascade.cost(usage.bill, role) for _, usage in spent),
            )
        return models


def _other_may_answer(question: Question, error: Exception) -> bool:
    """Return whether the other model may answer, although a question failed."""
    if is_wrong_call(error) or is_control_flow(error):
        return False
    return not question.request.cutoff.given_up and not question.passed_on


def _check_options(options: Options, small: Voter) -> None:
    """Refuse options that contradict ``escalate_to``."""
    if options.calibration == "mixture":
        raise ConfigurationError(
            "calibration='mixture' decides by the first responses to a whole batch, "
            "and escalate_to question by question; use calibration='online', or leave "
            "out one of the two"
        )
    calibration = small.calibration
    is_by_votes = options.rule is None and (
        calibration is None or calibration.escalation is not None
    )
    if is_by_votes and options.max_samples < DEFAULT_RACE.votes:
        raise ConfigurationError(
            f"max_samples={options.max_samples} leaves no room for the "
            f"{DEFAULT_RACE.votes} equal votes by which an answer stands with "
            "escalate_to; allow more, or give a rule"
        )


def _check_promise(known: LearnedEscalation, asked: Escalation) -> None:
    """Refuse a calibration that promises less than is asked."""
    if asked.within is not None and asked.within < known.within:
        raise ConfigurationError(
            f"within={asked.within:g} is less than the calibration promises "
            f"({known.within:g}); calibrate again with this value, or leave it out"
        )


def _check_large_model(
    calibration: Calibration, options: Options, large: Voter
) -> None:
    """Refuse a calibration that was made with another large model."""
    if calibration.large is None or options.allow_fingerprint_mismatch:
        return
    try:
        check_fingerprint(calibration.large, large.fingerprint.unbound())
    except FingerprintMismatch as error:
        raise FingerprintMismatch(f"the large model (escalate_to): {error}") from None


def _learner(
    options: Options, online: Online, within: float, small: Voter, large: Voter
) -> EscalationLearner:
    """Return what learns from both models."""
    learner = EscalationLearner(
        within=within,
        measure=options.measure,
        fingerprint=small.fingerprint.unbound(),
        large=large.fingerprint.unbound(),
        path=online.path,
        any_model=options.allow_fingerprint_mismatch,
    )
    if not in_event_loop():
        # A file that cannot be used is refused at once, or else by the first call.
        learner.known("")
    return learner
