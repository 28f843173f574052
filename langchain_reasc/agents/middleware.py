"""``ReASCMiddleware``: votes over what an agent is about to do, inside ``create_agent``."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Annotated, Any, NotRequired, Unpack, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool

from langchain_reasc.agents.budget import Ledger, RunBudget, Spent, Unsettled, added
from langchain_reasc.agents.chat_model import ChatReASC
from langchain_reasc.agents.options import VoteOptions, checked_names, checked_options
from langchain_reasc.answers import extractor, schemas_of
from langchain_reasc.calibration import Calibration, ConsensusCalibrator, MixtureCalibrator
from langchain_reasc.complaints import suggestion, warn_once
from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.runnable.setup import LEARNING

try:
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        PrivateStateAttr,
    )
    from langgraph.runtime import Runtime
    from langgraph.types import Command, Overwrite
except ImportError as error:
    raise missing_extra("agents", "langchain") from error

__all__ = ["ReASCMiddleware"]

logger = logging.getLogger(__name__)

When = Callable[[ModelRequest[Any], AIMessage], bool | Awaitable[bool]]


class SpendingState(AgentState[Any]):
    """The agent's state, with what the model calls of a run have cost so far."""

    reasc_spent: NotRequired[Annotated[Spent, PrivateStateAttr, added]]


class ReASCMiddleware(AgentMiddleware[SpendingState, Any, Any]):
    """Puts what an agent's model is about to do to the vote, adaptively, where that deserves it.

    Each model call of the agent goes to a :class:`~langchain_reasc.ChatReASC` around the agent's model. The first
    response is launched alone; ``when`` says whether it deserves a vote, and if it does, the model is sampled on until
    the evidence for one response is sufficient. (Where every response is voted on, such as structured output in the
    provider's own way, samples are launched together from the start.) To the agent, its handlers and its other
    middleware that is one model call, whose usage is the bill of all samples.

    A budget holds for a run of the agent, from one input to its answer, over interruptions and checkpoints. What is
    left of it bounds each call. Once it is gone, each further step takes one sample, and a line in the log says so.
    Agents that run inside tools have budgets of their own. Only a vote can be undecided, as it is for want of budget:
    with ``on_undecided="abstain"`` an empty message then ends the run, with ``"raise"`` an error.

    Order among other middleware (the first in the list is the outermost):

    - Retries inside (after this one in the list) repeat the whole vote of a step, as those outside do, since all tries
      of a step call the same model. A sample that fails costs only itself, so there is something to repeat only where
      none succeeded. What failed tries cost counts for the budget either way, but each try inside is bounded by what
      was left before the first.
    - Fallbacks outside (before this one) put the fallback's responses to the vote, too. Fallbacks inside do not: they
      replace the voting model by the plain fallback, whose one response is taken, and not counted by the budget.
    - Middleware that chooses the model belongs outside. Inside it would replace the voting model by a plain one.
    - Middleware that asks what the model is, such as prompt caching of a provider, sees the agent's own either way.
    - Summarisation, human approval, call limits and PII middleware work before or after the model call, and on the
      winner alone; where they stand makes no difference. A call limit counts one call a step, however many samples.

    A calibration is compared with each request, its tools and system messages included; one that does not fit raises
    FingerprintMismatch out of the agent's run, before anything is paid for. It is no part of a checkpoint: a run that
    is taken up again goes on with the calibration of the agent that takes it up.

    Example:
        >>> agent = create_agent(llm, tools, middleware=[ReASCMiddleware(read_only=["search"], max_run_tokens=50_000)])
    """

    state_schema = SpendingState

    def __init__(
        self,
        *,
        when: When | None = None,
        read_only: Collection[str] = (),
        max_run_tokens: int | None = None,
        max_run_samples: int | None = None,
        max_run_seconds: float | None = None,
        **options: Unpack[VoteOptions],
    ) -> None:
        """Set it up.

        Args:
            when: given the request and the first response, says whether to put it to the vote. None for every response
                that calls tools, and for structured output; text alone is then passed on, unless ``answer`` says where
                an answer is in it. An async function is awaited, and refused in a synchronous run. Where it fails, the
                response is put to the vote; LangGraph's ``interrupt()`` in it interrupts the agent.
            read_only: names of tools that change nothing. A response that calls only such is passed on. A name that no
                tool of the agent has is warned of at its first step.
            max_run_tokens: prompt and generated tokens that the samples of a run may cost.
            max_run_samples: samples that a run may launch.
            max_run_seconds: seconds that the model calls of a run may take. A sample in flight then is waited for.
            **options: those of :class:`~langchain_reasc.ChatReASC`, for each model call.

        Raises:
            ConfigurationError: an option that does not exist, a value that it cannot have, or two that contradict.
            CalibrationFileError: the calibration's file cannot be read.
        """
        super().__init__()
        if when is not None and read_only:
            raise ConfigurationError("read_only goes without when, which alone decides on every first response")
        self._when, self._read_only = when, checked_names(read_only)
        self._seen: set[str] = set()
        self._budget = RunBudget(tokens=max_run_tokens, samples=max_run_samples, seconds=max_run_seconds).checked()
        if self._budget.unlimited:
            self.state_schema = cast(Any, AgentState)  # nothing is counted, so the agent's state has no count
        self._options, trial = checked_options(options)
        self._texts_vote = extractor(trial.answer).texts_vote
        given = options.get("calibrator")
        self._calibrators: list[MixtureCalibrator | ConsensusCalibrator] = [given] if given else []
        self._unsettled, self._lock, self._advised = Unsettled(), threading.Lock(), set[str]()

    @property
    def learned(self) -> Calibration | None:
        """The calibration in use: of one that learns, what was learned of the model called last, to be saved."""
        if self._calibrators:
            return self._calibrators[-1].calibration
        given = self._options.get("calibration")
        return given if isinstance(given, Calibration) else None

    def before_agent(self, state: SpendingState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """A new run: the budget starts anew. A run that is resumed does not come by here."""
        return {"reasc_spent": Overwrite(Spent())} if state.get("reasc_spent") else None

    async def abefore_agent(self, state: SpendingState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The asynchronous :meth:`before_agent`."""
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """One model call of the agent, by a model that votes.

        Raises:
            ConfigurationError: the agent's model is itself one of ReASC, or none that can be sampled.
            FingerprintMismatch: the calibration was measured on something else than this request.
            LogprobsUnavailable: a calibration needs logprobs and the model returned none.
            Exception: what the model raised, where no sample succeeded.
        """
        ledger = Ledger()
        with self._kept_if_failed(request, ledger):
            response = handler(self._voting(request, ledger))
        return self._settled(request, ledger, response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """The asynchronous :meth:`wrap_model_call`."""
        ledger = Ledger()
        with self._kept_if_failed(request, ledger):
            voting = await asyncio.to_thread(self._voting, request, ledger)  # which may read what was learned
            response = await handler(voting)
        return self._settled(request, ledger, response)

    def _voting(self, request: ModelRequest[Any], ledger: Ledger) -> ModelRequest[Any]:
        """The request with a model that votes, within what is left of the budget."""
        self._check_read_only(request.tools)
        options = {**self._options, "advised": self._advised}
        if not self._budget.unlimited:
            spent = added(_so_far(request), self._unsettled.of(_task(request)))
            options = self._budget.left(spent).within(options) | {"on_spent": ledger.book}
        if (when := self._when or (self._acts if self._read_only and request.tools else None)) is not None:
            options["when"] = partial(when, request)
        return request.override(model=_shown(request.model, self._around(request.model, options)))

    def _around(self, model: BaseChatModel, options: dict[str, Any]) -> ChatReASC:
        """The model that votes. What has been learned of a model goes on from call to call."""
        if options.get("calibration") not in LEARNING:
            return ChatReASC(model=model, **options)
        with self._lock:
            latest = self._calibrators[-1] if self._calibrators else None
            voting = ChatReASC(model=model, **options | {"calibrator": latest})
            made = voting.calibrator
            if made is None or made is latest:
                return voting
            known = next((one for one in self._calibrators if one.learns_like(made)), made)
            self._calibrators = [*(one for one in self._calibrators if one is not known), known]
        return voting if known is made else ChatReASC(model=model, **options | {"calibrator": known})

    def _check_read_only(self, tools: Sequence[BaseTool | dict[str, Any]]) -> None:
        """Say once of each name in ``read_only`` that no request has had a tool of it, from the first on."""
        if self._read_only <= self._seen:
            return
        self._seen |= {tool.name for tool in tools if isinstance(tool, BaseTool)}
        self._seen |= schemas_of([tool for tool in tools if not isinstance(tool, BaseTool)]).keys()
        for name in sorted(self._read_only - self._seen):
            hint = suggestion(name, sorted(self._seen)) if self._seen else "it has none"
            warn_once(f"read_only names {name!r}, which is no tool of this agent; {hint}", id(self))

    def _acts(self, request: ModelRequest[Any], response: AIMessage) -> bool:
        """Whether a first response changes something, or is the structured output that was asked for."""
        if response.invalid_tool_calls:
            return True
        if response.tool_calls:
            return any(call["name"] not in self._read_only for call in response.tool_calls)
        return self._texts_vote or request.response_format is not None

    @contextmanager
    def _kept_if_failed(self, request: ModelRequest[Any], ledger: Ledger) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if not self._budget.unlimited and (task := _task(request)):
                self._unsettled.keep(task, ledger.spent)
            raise

    def _settled(
        self, request: ModelRequest[Any], ledger: Ledger, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """The response, with what the call and its failed tries have cost."""
        if self._budget.unlimited:
            return response
        before, spent = _so_far(request), added(ledger.spent, self._unsettled.settle(_task(request)))
        if self._budget.left(added(before, spent)).gone and not self._budget.left(before).gone:
            logger.warning("the budget of this run is spent (%s): each further step takes one sample", self._budget)
        return ExtendedModelResponse(response, Command(update={"reasc_spent": spent}))


def _shown(model: BaseChatModel, voting: ChatReASC) -> BaseChatModel:
    """The agent's model, as middleware inside looks for its class and its options; once bound, it is the voting one.

    An agent binds its model to tools or arguments before each call of it.
    """
    if not isinstance(model, BaseChatModel):  # one that a config chooses
        return voting
    if "bind_tools" in vars(model):
        raise ConfigurationError("two ReASCMiddleware around one model call would vote on votes; leave one out")
    shown = copy(model)
    vars(shown).update(bind=voting.bind, bind_tools=voting.bind_tools)
    return shown


def _so_far(request: ModelRequest[Any]) -> Spent:
    """What the steps before this one have cost."""
    state: Any = request.state
    return state.get("reasc_spent") or Spent()


def _task(request: ModelRequest[Any]) -> str:
    """The step of the agent, the same for all its tries; empty outside a graph."""
    info = getattr(request.runtime, "execution_info", None)
    return info.task_id if info else ""
