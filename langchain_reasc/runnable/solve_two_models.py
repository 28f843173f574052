"""Solve a question with two models: which of them is asked, and one result of both
models' responses.

The small model answers, unless its votes are contested. What is learned from questions
that both were asked says which of its answers may stand.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage

from langchain_reasc.answers import is_refusal
from langchain_reasc.calibration import (
    DEFAULT_RACE,
    Course,
    LearnedEscalation,
    Shadowed,
    numbered,
)
from langchain_reasc.exceptions import is_control_flow
from langchain_reasc.method.decision import Reason
from langchain_reasc.models.usage import Usage
from langchain_reasc.runnable.cascade import Cascade, Solver
from langchain_reasc.runnable.failures import both_failed, is_wrong_call, log_failure
from langchain_reasc.runnable.history import Role
from langchain_reasc.runnable.message_metadata import (
    FailedModel,
    ModelAccount,
    named_votes,
)
from langchain_reasc.runnable.options import Options
from langchain_reasc.runnable.question import CallBudget, DeservesVote, Question
from langchain_reasc.runnable.request import Request
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.solve import Solving, begin, solve
from langchain_reasc.sampling import SampledResponse

logger = logging.getLogger(__name__)

Grade = Callable[[AIMessage], bool]
"""Returns whether a response is right."""
_ROLES: Final[tuple[Role, ...]] = ("small", "large")


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
    if solver.learner is not None:
        course = await request.run(partial(solver.course, request.kind))
    else:
        course = solver.course(request.kind)
    calibration = solver.small.calibration
    if solver.escalation is not None and calibration is not None:
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
    return await solving.shadow(cascade.learner.learned(kind), grade)


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
        # Both models' spending is reported together, at the end.
        budget = replace(self._budget, on_spent=None)
        if course is None:
            # Nothing is learned: the plan of the small model decides.
            await self._ask("small", budget, **self._options)
        elif course.rule is not None and not course.shadowed:
            plan = self._cascade.plan_by(course.rule)
            await self._ask("small", budget, **self._options, plan=plan)
        else:
            # The large model's answer is the result, whatever the small one says.
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
        self, learned: LearnedEscalation, grade: Grade | None = None
    ) -> Shadowed | None:
        """Ask the small model what the large one has answered, to learn from both.

        Args:
            learned: what is known of the two.
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
            read_answer = partial(small.answer_of, of_large.message)
            answer = await self._request.read(read_answer)
        # Equal first answers decide all tests, so most races need one response.
        small.decide_by(self._cascade.plan_by(learned.shadow_rule(answer)))
        await self._solve(small)
        if "small" in self.results:
            [of_small] = self.results["small"]
            if of_small.decision.reason not in ("unanimous", "contested"):
                # The race was cut short.
                return None
        read_row = partial(self._row, small, grade)
        row = await self._request.run(read_row)
        budget = self._rest_of_budget()
        if learned.asks_again(row) and budget is not None:
            await self._solve(await self._ask_beside("large", budget))
            # The first answer stands, even if the second failed.
            self._failed.pop("large", None)
            if len(self.results["large"]) > 1:
                row = await self._request.run(read_row)
        if "small" in self.results:
            # A judge may have compared the answers since.
            [of_small] = self.results["small"]
            self.results["small"] = [replace(of_small, usage=small.usage)]
        # A small model that failed has no answer, which is a row like any other.
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
            # The user's function was asked about the first model's response.
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
        if course is None or course.learned is None or not course.shadowed:
            return
        if self.results["large"][0].decision.reason == "alone":
            # Such answers are not compared.
            return
        try:
            row = await self.shadow(course.learned)
            learner = self._cascade.learner
            if row is not None and learner is not None:
                observe = partial(learner.observe, self._request.kind, row)
                await self._request.run(observe)
        except Exception as error:  # of what the answer does not rest on
            if is_control_flow(error) or is_wrong_call(error):
                raise
            if self._request.cutoff.given_up:
                raise
            logger.warning("a question could not be learned from", exc_info=error)

    def _is_contested(self, result: ReASCResult) -> bool:
        """Return whether the small model's result sends the question to the large
        one.
        """
        if result.decision.reason == "alone":
            # It was not voted on, and stands, unless the model refused to answer.
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
        if any(left is not None and left <= 0 for left in (tokens, samples)):
            return None
        return CallBudget(tokens, samples, self._budget.seconds)

    @property
    def _notices(self) -> Sequence[str]:
        """Why the large model answers alone, how far learning is, or that the rule that
        decides is on trial; else empty.
        """
        learned = self._course.learned if self._course else None
        if learned is None:
            return []
        if learned.rule is None:
            return [learned.status]
        # A calibration that learns no more has no trial.
        if self._cascade.learner is None or learned.trial is None:
            return []
        return [learned.trial]

    @property
    def _promise(self) -> str | None:
        """What the rule that decides promises; None without one."""
        learned = self._course.learned if self._course else None
        if learned is None or learned.rule is None:
            return None
        return learned.promise(learned.rule)

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
            first = used[0].message if used else None
            is_small_right = first is not None and grade(first)
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
        all_responses: list[SampledResponse] = []
        other_usages: list[Usage] = []
        for responses, usage in self._paid():
            is_other = usage is not result.usage
            if is_other:
                other_usages.append(usage)
            for response in responses:
                # Nothing but the answering model's responses decided.
                if is_other:
                    response = replace(response, used=False, weight=0.0)
                index = len(all_responses)
                all_responses.append(replace(response, index=index))
        account = replace(
            result.account,
            launched=len(all_responses),
            failed=sum(response.status == "failed" for response in all_responses),
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
            responses=tuple(all_responses),
            usage=Usage.of_two_models(result.usage, other_usages),
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

    def _paid(
        self, role: Role | None = None
    ) -> list[tuple[Sequence[SampledResponse], Usage]]:
        """Return the samples of each question, and their cost; of one model, or of
        both.
        """
        paid: list[tuple[Sequence[SampledResponse], Usage]] = []
        for result_role, results in self.results.items():
            if role in (None, result_role):
                paid += [(result.responses, result.usage) for result in results]
        # Questions that failed have no result, and were paid for all the same.
        failed = [question for question in self._questions if not question.has_response]
        for failed_role in _ROLES:
            if role not in (None, failed_role):
                continue
            for question in failed:
                if question.request.role == failed_role:
                    paid.append((question.sampled_responses, question.usage))
        return paid

    def _models(self) -> dict[str, ModelAccount]:
        """Return what each model answered, and what it cost."""
        models: dict[str, ModelAccount] = {}
        for role in _ROLES:
            paid = self._paid(role)
            if not paid:
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
                launched=sum(len(responses) for responses, _ in paid),
                input=sum(usage.input_tokens for _, usage in paid),
                output=sum(usage.output_tokens for _, usage in paid),
                cost=sum(self._cascade.cost(usage.bill, role) for _, usage in paid),
            )
        return models


def _other_may_answer(question: Question, error: Exception) -> bool:
    """Return whether the other model may answer, although a question failed."""
    if is_wrong_call(error) or is_control_flow(error):
        return False
    return not question.request.cutoff.given_up and not question.passed_on
