"""What the responses to one question vote for, and which of them vote for the same."""

import inspect
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.answers import (
    REASONING,
    TOO_SLOW,
    Classes,
    Extractor,
    ObjectVotes,
    Schemas,
    ToolVotes,
    Vote,
    arguments_of,
    can_refuse,
    vote_of,
    with_answer,
)
from langchain_reasc.exceptions import ConfigurationError, ReASCError, is_control_flow
from langchain_reasc.method.hopeless import Hopeless
from langchain_reasc.method.stopping import Decision, Response, StoppingRule
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.runnable.meanings import Meanings
from langchain_reasc.runnable.summary import HOPELESS
from langchain_reasc.sampling.time_limit import QuestionClock, within

__all__ = ["Ballot", "DeservesVote", "refuse_async"]

logger = logging.getLogger(__name__)
_LATE: Final = 0.1  # seconds for the answer of a response that came just before the question's time was over

DeservesVote = Callable[[AIMessage], bool | Awaitable[bool]]
"""Whether a first response is to be put to the vote; what is not is taken as it is."""


def refuse_async(deserves_vote: Any) -> None:
    """Refuse an async function where nobody can await it.

    Raises:
        ConfigurationError: it is one.
    """
    if inspect.iscoroutinefunction(deserves_vote) or inspect.isawaitable(deserves_vote):
        raise ConfigurationError(
            "when= is an async function, which only asynchronous calls can await: call ainvoke, astream or abatch, or "
            "give a function that is not async"
        )


class Ballot:
    """The vote on one question.

    Args:
        extract: finds the answer in a response.
        tools: how calls of tools are compared.
        schemas: tool -> schema of its arguments; None where the tools are not known.
        meanings: sorts answers in free text by what they mean; None compares their spelling.
        clock: how long the question may take, to find answers too; None for any time.
        cutoff: tells when the whole call is given up.
        deserves_vote: asked of the first response. None puts every response to the vote.
        advised: the arguments and fields of which was said how to leave them out of the vote; said once of each.
    """

    def __init__(
        self,
        extract: Extractor,
        tools: ToolVotes,
        schemas: Schemas | None = None,
        *,
        meanings: Meanings | None = None,
        clock: QuestionClock | None = None,
        cutoff: Cutoff | None = None,
        deserves_vote: DeservesVote | None = None,
        advised: set[str] | None = None,
    ) -> None:
        self.extract, self._tools, self._schemas = extract, tools, schemas
        self._meanings, self._deserves_vote = meanings, deserves_vote
        self._clock, self._cutoff = clock, cutoff or Cutoff()
        self._deserved = True
        self._advised = set() if advised is None else advised
        self._parts: dict[str, Mapping[str, str] | None] = {}  # of each answer
        self._near = Classes(self._is_near)
        self._without: Counter[str] = Counter()  # why -> responses
        self._notices: dict[str, None] = {}  # an ordered set

    @property
    def may_need_none(self) -> bool:
        """Whether the first response is looked at before any other is launched."""
        return self._deserves_vote is not None

    @property
    def needs_none(self) -> bool:
        """Whether the first response is taken as it is."""
        return not self._deserved

    def judge(self, first: AIMessage) -> None:
        """Ask whether the first response deserves a vote; where that fails, it does.

        Raises:
            ConfigurationError: an async function was to tell it.
        """
        if self._deserves_vote is not None:
            with self._voted_on_if_failed():
                deserved = self._deserves_vote(first)
                if inspect.iscoroutine(deserved):
                    deserved.close()
                refuse_async(deserved)
                self._deserved = bool(deserved)

    async def ajudge(self, first: AIMessage) -> None:
        """The asynchronous :meth:`judge`, which awaits an async function."""
        if self._deserves_vote is not None:
            with self._voted_on_if_failed():
                deserved = self._deserves_vote(first)
                self._deserved = bool(await deserved if inspect.isawaitable(deserved) else deserved)

    @contextmanager
    def _voted_on_if_failed(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the user's function, asked of a response that is paid for
            if isinstance(error, ReASCError) or is_control_flow(error):
                raise
            failure = f"{getattr(self._deserves_vote, '__name__', 'when')} failed on a response: {error!r}"
            logger.warning("%s; the response is put to the vote", failure, exc_info=error)
            self._notices[failure] = None

    def rule(self, rule: StoppingRule, budget: int) -> StoppingRule:
        """The rule as it decides on such answers: by field or as it is, and not on what can never agree.

        Args:
            rule: when to stop.
            budget: responses in all.
        """
        rule = Hopeless(rule, self._parts_of, budget)
        return self.extract.objects.rule(rule) if self.extract.objects else rule

    def vote(self, message: AIMessage) -> Vote:
        """What a response votes for, in its own words."""
        vote = Vote(None)
        try:
            vote = self._in_time(partial(vote_of, message, self.extract, self._tools, self._schemas))
        except TimeoutError:
            vote = Vote(None, why_none=TOO_SLOW)
        except Exception as error:  # the user's extractor: one odd response must not lose the others
            if isinstance(error, ReASCError) or is_control_flow(error):
                raise
            self._notices[f"the answer extractor failed on a response: {error!r}"] = None
        if vote.why_none:
            self._without[vote.why_none] += 1
        if vote.calls and self._schemas and self._tools.check_schema and not can_refuse():
            self._notices["calls are not checked against the schemas of their tools: jsonschema is not installed"] = (
                None
            )
        return vote

    def answer(self, vote: Vote) -> str | None:
        """The answer of the first response that gave the same one in other words, or with numbers near to these."""
        if vote.answer is None:
            return None
        if vote.calls or self.extract.objects:
            return self._near.of(vote.answer)
        return self._meanings.of(vote.answer) if self._meanings else vote.answer

    def written(self, message: AIMessage, answer: str) -> AIMessage | None:
        """A response with an object in it that was put together from several; None where that cannot be."""
        return with_answer(message, answer, self.extract.objects) if self.extract.objects else None

    @property
    def bill(self) -> UsageMetadata | None:
        """Tokens of a judge; None where none is asked."""
        return self._meanings.bill if self._meanings else None

    @property
    def estimated(self) -> bool:
        """Whether some of the judge's tokens were counted from what arrived."""
        return self._meanings is not None and self._meanings.estimated

    def told(self, responses: Sequence[Response]) -> list[str]:
        """Notices of responses that cast no vote, or one that alone would not have been enough."""
        seen, told = len(responses), list(self._notices)
        if without := self._without.total():
            reasons = "; ".join(f"{why} ({count})" for why, count in self._without.most_common())
            told.append(f"{without} of {seen} responses cast no vote: {reasons}")
        if cut := sum(response.cut_off and response.answer is not None for response in responses):
            told.append(
                f"{cut} of {seen} responses were cut off after they had said their answer: it counts as a vote, but is "
                "never accepted alone; allow the model more tokens"
            )
        return [*told, *(self._meanings.notices if self._meanings else ())]

    def hopeless(self, decision: Decision) -> list[str]:
        """What never agrees, and the first time how to leave it out of the vote."""
        if not decision.hopeless:
            return []
        names = decision.hopeless
        differ = f"{' and '.join(names)} {'differs' if len(names) == 1 else 'differ'}"
        told = f"{HOPELESS}: {differ} from response to response"
        if not self._advised.issuperset(names):
            self._advised.update(names)
            told = f"{told}; to leave that out of the vote: {self._leaving_out(decision)}"
            logger.warning("%s", told)
        return [told]

    def _leaving_out(self, decision: Decision) -> str:
        """The option that leaves out of the vote what never agrees."""
        names, objects = decision.hopeless, self.extract.objects
        if arguments_of(decision.answer or "") is None:
            kept = list(objects.leave_out) if objects and set(objects.leave_out) != set(REASONING) else []
            by_field = "by_field=True, " if objects and objects.by_field else ""
            return f"answer=json_object({by_field}leave_out={json.dumps([*kept, *names])})"
        called, excluded = [name.split(".", 1) for name in names], self._tools.exclude_args
        if isinstance(excluded, Mapping):
            given = {tool: list(arguments) for tool, arguments in excluded.items()}
            for tool, argument in called:
                given.setdefault(tool, []).append(argument)
            return f"tool_votes=ToolVotes(exclude_args={json.dumps(given)})"
        kept = [] if set(excluded) == set(REASONING) else list(excluded)
        kept = list(dict.fromkeys([*kept, *(argument for _, argument in called)]))
        return f"tool_votes=ToolVotes(exclude_args={json.dumps(kept)})"

    def _parts_of(self, answer: str) -> Mapping[str, str] | None:
        """The arguments of calls, or the fields of an object; None of an answer that is one thing."""
        if answer not in self._parts:
            objects = self.extract.objects or (None if self.extract.texts_vote else ObjectVotes())
            fields = objects.fields(answer) if objects else None
            if not fields:  # what is decided by field is one thing, too
                fields = {"": answer} if objects and objects.by_field else None
            arguments = arguments_of(answer)
            self._parts[answer] = fields if arguments is None else arguments
        return self._parts[answer]

    def _in_time(self, read: Callable[[], Vote]) -> Vote:
        """What a response votes for, found while the question has time: formulas and users' functions may take long."""
        left = self._clock.left if self._clock else None
        return read() if left is None else within(max(left, _LATE), read, self._cutoff)

    def _is_near(self, one: str, other: str) -> bool:
        objects = self.extract.objects
        return self._tools.same(one, other) or (objects is not None and objects.same(one, other))
