"""``ReASCMiddleware``: vote on each step of an agent made by ``create_agent``, within a
budget for a run.
"""

import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, Unpack, cast

from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langsmith.utils import tracing_is_enabled

from langchain_reasc.agents.budget import (
    Ledger,
    ResetsBudget,
    RunBudget,
    SpendingState,
    Spent,
    added,
)
from langchain_reasc.agents.chat_model import ActingCalls, ChatReASC
from langchain_reasc.answers import extractor, schemas_of
from langchain_reasc.calibration import Calibration, ConsensusCalibrator
from langchain_reasc.complaints import suggestion, warn_once
from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.models.wrappers import leaves
from langchain_reasc.runnable.cascade import ASKED_ONCE
from langchain_reasc.runnable.face import Calibrator, question_id
from langchain_reasc.runnable.options import VoteOptions, refuse_former_names
from langchain_reasc.threads import in_thread

try:
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
    )
    from langgraph.types import Command
except ImportError as error:
    raise missing_extra("agents", "langchain") from error

logger = logging.getLogger(__name__)

When = (
    Callable[[AIMessage], bool | Awaitable[bool]]
    | Callable[[ModelRequest[Any], AIMessage], bool | Awaitable[bool]]
)
"""Whether a first response is put to the vote. A function of two arguments is given the
request, too.
"""


class ReASCMiddleware(AgentMiddleware[SpendingState, Any, Any]):
    """Vote on an agent's tool calls and structured output, with as many samples as the
    evidence needs.

    Each model call of the agent goes to a :class:`~langchain_reasc.ChatReASC` around
    the agent's model. The first response is launched alone. If ``when`` decides that it
    needs a vote, the model is sampled until the evidence for one response is
    sufficient. (If every response is voted on, such as structured output of the
    provider, samples are launched in parallel from the start.) The agent, its handlers
    and its other middleware see one model call, whose usage is the cost of all samples.

    A budget is for a run of the agent, from one input to its answer, across
    interruptions and checkpoints. The rest of the budget limits each call. When it is
    spent, each further step takes one sample, and the log says so. Agents inside tools
    have separate budgets. A vote that runs out of budget is undecided: with
    ``on_undecided="abstain"`` an empty message then ends the run, and with ``"raise"``
    an error.

    Order among other middleware (the first in the list is the outermost):

    - Retries, inside (after this one in the list) or outside, repeat the whole vote of
      a step. That only happens if every sample failed, because one failed sample does
      not fail the vote. The cost of failed tries counts for the budget, but each inner
      try is limited by what was left before the first.
    - With fallbacks outside (before this one), the fallback's responses are voted on
      too. Fallbacks inside replace the voting model by the plain fallback: its single
      response is used, and the budget does not count it.
    - Middleware that chooses the model belongs outside. Inside it would replace the
      voting model by a plain one. If it chooses the model of ``escalate_to``, that is
      asked once, or votes if it is a ReASC model.
    - Middleware that checks the model's class, such as prompt caching of a provider,
      sees the agent's own model.
    - Summarisation, human approval, call limits and PII middleware work before or after
      the model call, and only on the winner, so their place does not matter. A call
      limit counts one call per step, however many samples.

    A calibration is compared with each request, including its tools and system
    messages. If it does not fit, the agent's run raises FingerprintMismatch before any
    sample is paid for. Checkpoints do not contain the calibration: a resumed run uses
    the calibration of the agent that resumes it.

    Example:
        >>> agent = create_agent(llm, tools, middleware=[ReASCMiddleware(read_only=["search"], max_run_tokens=50_000)])
    """

    state_schema = SpendingState

    def __init__(
        self,
        *,
        when: When | None = None,
        read_only: Collection[str] = (),
        usage: Literal["all", "winner"] = "all",
        max_run_tokens: int | None = None,
        max_run_samples: int | None = None,
        max_run_seconds: float | None = None,
        **options: Unpack[VoteOptions],
    ) -> None:
        """Check the options.

        Args:
            when: takes the first response, or the request and the first response, and
                returns whether to vote. The larger model's response is not asked about.
                None votes on every response that calls tools, and on structured output;
                a response that is only text is then returned without a vote, unless
                ``answer`` says where its answer is. An async function is awaited, and
                refused in a synchronous run. If the function fails, there is a vote;
                LangGraph's ``interrupt()`` in it interrupts the agent.
            read_only: names of tools that change nothing. A response that only calls
                such tools is not voted on. A name that no tool of the agent has causes
                a warning at the first step.
            usage: which tokens the ``usage_metadata`` of a step's message has: of all
                samples, or of the winning response alone, which
                ``SummarizationMiddleware`` needs. A budget counts all in either case.
            max_run_tokens: prompt and generated tokens that the samples of a run may
                cost.
            max_run_samples: samples that a run may launch.
            max_run_seconds: seconds that the model calls of a run may take. Samples in
                flight are still awaited.
            **options: the options listed above, for each model call.

        Raises:
            ConfigurationError: an option is unknown or has a wrong value, or two
                options contradict each other.
            CalibrationFileError: the calibration's file cannot be read.
        """
        super().__init__()
        if when is not None and read_only:
            raise ConfigurationError("pass either when= or read_only=, not both")
        if isinstance(read_only, str) or not all(
            isinstance(name, str) for name in read_only
        ):
            raise ConfigurationError(
                "read_only takes names of tools, such as ['search', 'get_weather'], "
                f"got {read_only!r}"
            )
        self._when = when
        self._read_only = frozenset(read_only)
        self._usage = usage
        self._tool_names: set[str] = set()
        self._budget = RunBudget(
            tokens=max_run_tokens, samples=max_run_samples, seconds=max_run_seconds
        )
        if self._budget.limits:
            # LangChain looks at the class for hooks, and a hook is a node of the graph,
            # whose update is None for those who stream updates. So only a budget has
            # it. A subclass may choose the budget in its own __init__, so that the
            # class cannot be chosen before (in __new__).
            kind: Any = type(self)
            self.__class__ = type(kind)(kind.__name__, (kind, ResetsBudget), {})
        else:
            # Nothing is counted, so the agent's state has no count.
            self.state_schema = cast(Any, AgentState)
        self._options, trial = _checked(options, usage)
        self._texts_vote = extractor(trial.answer).texts_vote
        self._larger = trial.larger
        self._learns = trial.is_learning
        self._learns_outcomes = trial.online is not None and trial.larger is None
        self._calibrators: list[Calibrator] = []
        self._ledger = Ledger()
        self._lock = threading.Lock()

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use: of one that learns, what was learned of the model
        called last, to be saved.
        """
        if self._calibrators:
            return self._calibrators[-1].calibration
        calibration = self._options.get("calibration")
        return calibration if isinstance(calibration, Calibration) else None

    def record_outcome(self, answered: AIMessage | str, correct: bool) -> bool:
        """Tell ``calibration="online"`` whether a step's answer was right; see
        :meth:`ChatReASC.record_outcome`.

        Args:
            answered: the step's message, or the ``id`` in its account.
            correct: whether its answer was right.

        Returns:
            Whether the step is known: it is not before the first model call, nor long
            after.

        Raises:
            ConfigurationError: nothing is learned here, or the message is not one of
                ReASC's.
        """
        if not self._learns_outcomes:
            beside = "" if self._larger is None else " without escalate_to"
            raise ConfigurationError(
                f"outcomes are learned with calibration='online'{beside}, not "
                f"{self._options.get('calibration')!r}"
            )
        id = question_id(answered)
        if id is None:
            return False
        return any(
            calibrator.record_outcome(id, bool(correct))
            for calibrator in self._calibrators
            if isinstance(calibrator, ConsensusCalibrator)
        )

    async def arecord_outcome(self, answered: AIMessage | str, correct: bool) -> bool:
        """The asynchronous :meth:`record_outcome`."""
        return await in_thread(self.record_outcome, answered, correct)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Make a model call of the agent with a voting model.

        Raises:
            ConfigurationError: the agent's model is already a ReASC model, or cannot be
                sampled.
            FingerprintMismatch: the calibration does not fit this request.
            LogprobsUnavailable: a calibration needs logprobs and the model returned
                none.
            Exception: the model's error, if no sample succeeded.
        """
        with self._ledger.account(self._task(request)) as spent:
            response = handler(self._voting_request(request, spent))
        return self._with_spending(request, spent, response)

    @property
    def awrap_model_call(self) -> Any:
        """The asynchronous :meth:`wrap_model_call`.

        LangChain wraps it for LangSmith, which asks the loop's default thread pool
        before and after each coroutine function, even if it traces nothing. An agent
        made without LangSmith gets a function that returns a coroutine.
        """
        if tracing_is_enabled():
            return self._awrap_model_call
        return lambda request, handler: self._awrap_model_call(request, handler)

    async def _awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        with self._ledger.account(self._task(request)) as spent:
            if self._learns:  # it may read what was learned
                voting = await in_thread(self._voting_request, request, spent)
            else:
                voting = self._voting_request(request, spent)
            response = await handler(voting)
        return self._with_spending(request, spent, response)

    def _voting_request(
        self, request: ModelRequest[Any], spent: Spent
    ) -> ModelRequest[Any]:
        """Return the request with a voting model, within the rest of the budget."""
        self._check_read_only(request.tools)
        options = {**self._options, "usage": self._usage}
        if self._when is not None:
            options["when"] = self._when
            if _takes_request(self._when):
                when: Callable[..., Any] = self._when
                options["when"] = partial(when, request)
        elif self._read_only and request.tools:
            options["when"] = ActingCalls(
                self._read_only, self._texts_vote or request.response_format is not None
            )
        voting = self._voting_model(request.model, options)
        if self._budget.limits:
            on_spent = partial(self._ledger.add_cost, spent)
            voting._call_budget = self._budget.call_budget(
                added(_spent_before(request), spent), on_spent
            )
        return request.override(model=_binding_to(request.model, voting))

    def _voting_model(self, model: BaseChatModel, options: dict[str, Any]) -> ChatReASC:
        """Return the model that votes. It goes on with what earlier calls of the same
        model have learned.

        If the agent's model is the larger one, as a router or a fallback chose it, it
        is asked alone.
        """
        larger = self._larger
        if larger is not None and (
            model is larger or any(leaf.model is model for leaf in leaves(larger, {}))
        ):
            return _large_alone(model, options)
        voting = ChatReASC(model=model, **options)
        if self._learns and voting.calibrator is not None:
            voting._go_on_with(self._latest(voting.calibrator))
        return voting

    def _latest(self, new: Calibrator) -> Calibrator:
        """Return the calibrator of the same model as the ``new`` one, and move it to
        the end.
        """
        with self._lock:
            calibrators = list(self._calibrators)
            for index, calibrator in enumerate(calibrators):
                if calibrator.learns_of == new.learns_of:
                    new = calibrators.pop(index)
                    break
            # Replaced, not changed, because others read the list without the lock.
            self._calibrators = [*calibrators, new]
        return new

    def _check_read_only(self, tools: Sequence[BaseTool | dict[str, Any]]) -> None:
        """Warn once of each name in ``read_only`` that is no tool of a request so far."""
        if self._read_only <= self._tool_names:
            return
        self._tool_names |= {tool.name for tool in tools if isinstance(tool, BaseTool)}
        self._tool_names |= schemas_of(
            [tool for tool in tools if not isinstance(tool, BaseTool)]
        ).keys()
        for name in sorted(self._read_only - self._tool_names):
            if self._tool_names:
                hint = suggestion(name, sorted(self._tool_names))
            else:
                hint = "it has none"
            warn_once(
                f"read_only names {name!r}, which is not a tool of this agent; {hint}",
                id(self),
            )

    def _task(self, request: ModelRequest[Any]) -> str:
        """Return the id of the agent's step, the same for all its tries; empty outside
        a graph, or without a budget.
        """
        info = getattr(request.runtime, "execution_info", None)
        return info.task_id if info and self._budget.limits else ""

    def _with_spending(
        self, request: ModelRequest[Any], spent: Spent, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Return the response, with what the call and its failed tries have cost."""
        if not self._budget.limits:
            return response
        before = _spent_before(request)
        was_spent = self._budget.is_spent(before)
        if not was_spent and self._budget.is_spent(added(before, spent)):
            logger.warning(
                "the budget of this run is spent (%s): each further step takes one "
                "sample",
                self._budget,
            )
        return ExtendedModelResponse(response, Command(update={"reasc_spent": spent}))


_OPTIONS = ChatReASC.listed_options(VoteOptions.__annotations__)
ReASCMiddleware.__doc__ = (
    f"{inspect.cleandoc(ReASCMiddleware.__doc__ or '')}\n\n{_OPTIONS}"
)


def _checked(vote_options: VoteOptions, usage: Any) -> tuple[dict[str, Any], ChatReASC]:
    """Return the options, with a calibration read from its file, and a model made with
    them to check them.

    Raises:
        ConfigurationError: one that does not exist, or a value that it cannot have.
        CalibrationFileError: the calibration's file cannot be read.
    """
    options: dict[str, Any] = dict(vote_options)
    refuse_former_names(options)
    unknown = options.keys() - VoteOptions.__annotations__.keys()
    if unknown:
        raise ConfigurationError(
            f"unknown: {', '.join(sorted(unknown))}; besides its own, ReASCMiddleware "
            "takes the options of ChatReASC but its model: "
            f"{', '.join(VoteOptions.__annotations__)}"
        )
    trial = ChatReASC(
        model=FakeListChatModel(responses=[]),
        usage=usage,
        **options | {"allow_fingerprint_mismatch": True},
    )
    if trial.calibration is not None and not trial.is_learning:
        options["calibration"] = trial.learned
    if trial.larger is not None:  # made once, if it is a name
        options["escalate_to"] = trial.escalating_to(trial.larger)
    return options, trial


def _large_alone(model: BaseChatModel, options: Mapping[str, Any]) -> ChatReASC:
    """Return the larger of two models to be asked without the other: once, as a
    contested step does, or as it votes.
    """
    if isinstance(model, ChatReASC):
        alone = model.model_copy()
    else:
        alone_options = {**options, **ASKED_ONCE, "model": model}
        alone = ChatReASC(**alone_options)
    alone._asked = "large"
    return alone


def _takes_request(when: Callable[..., Any]) -> bool:
    """Return whether a function takes the request before the first response."""
    try:
        parameters = inspect.signature(when).parameters.values()
    except ValueError:  # of a function in C, which does not tell
        return True
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind
        in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
    ]
    has_any = any(
        parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters
    )
    return len(positional) > 1 or has_any


def _binding_to(model: BaseChatModel, voting: ChatReASC) -> BaseChatModel:
    """Return the agent's model, whose class and options other middleware looks at;
    bound, it is the voting one.

    An agent binds its model to tools or arguments before each call of it.
    """
    if not isinstance(model, BaseChatModel):  # one that a config chooses
        return voting
    if "bind_tools" in vars(model):
        raise ConfigurationError(
            "two ReASCMiddleware around one model call would vote on votes; leave one "
            "out"
        )
    presented = copy(model)
    vars(presented).update(bind=voting.bind, bind_tools=voting.bind_tools)
    return presented


def _spent_before(request: ModelRequest[Any]) -> Spent:
    """Return what earlier steps of the run have cost."""
    state: Any = request.state
    return state.get("reasc_spent") or Spent()
