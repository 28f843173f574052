"""What the responses to one question vote for, and which of them vote for the same."""

from collections import Counter
from collections.abc import Callable, Sequence

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from langchain_reasc.answers import Classes, Extractor, ToolVotes, Vote, can_refuse, vote_of, with_answer
from langchain_reasc.answers.tool_calls import Schemas
from langchain_reasc.exceptions import ReASCError
from langchain_reasc.method.stopping import Response, StoppingRule
from langchain_reasc.runnable.meanings import Meanings

__all__ = ["Ballot", "DeservesVote"]

DeservesVote = Callable[[AIMessage], bool]
"""Whether a first response is to be put to the vote; what is not is taken as it is."""


class Ballot:
    """The vote on one question.

    Args:
        extract: finds the answer in a response.
        tools: how calls of tools are compared.
        schemas: tool -> schema of its arguments; None where the tools are not known.
        meanings: sorts answers in free text by what they mean; None compares their spelling.
        deserves_vote: asked of the first response. None puts every response to the vote.
    """

    def __init__(
        self,
        extract: Extractor,
        tools: ToolVotes,
        schemas: Schemas | None = None,
        *,
        meanings: Meanings | None = None,
        deserves_vote: DeservesVote | None = None,
    ) -> None:
        self.extract, self._tools, self._schemas = extract, tools, schemas
        self._meanings, self._deserves_vote = meanings, deserves_vote
        self._near = Classes(self._is_near)
        self._without: Counter[str] = Counter()  # why -> responses
        self._notices: dict[str, None] = {}  # an ordered set

    @property
    def may_need_none(self) -> bool:
        """Whether the first response is looked at before any other is launched."""
        return self._deserves_vote is not None

    def needs_none(self, first: AIMessage) -> bool:
        """Whether the first response is taken as it is."""
        if self._deserves_vote is None:
            return False
        try:
            return not self._deserves_vote(first)
        except Exception as error:  # the user's function, asked of a response that is paid for
            self._notices[f"{getattr(self._deserves_vote, '__name__', 'when')} failed on a response: {error!r}"] = None
            return False

    def rule(self, rule: StoppingRule) -> StoppingRule:
        """The rule as it decides on such answers: by field, or as it is."""
        return self.extract.objects.rule(rule) if self.extract.objects else rule

    def vote(self, message: AIMessage) -> Vote:
        """What a response votes for, in its own words."""
        vote = Vote(None)
        try:
            vote = vote_of(message, self.extract, self._tools, self._schemas)
        except ReASCError:
            raise
        except Exception as error:  # the user's extractor: one odd response must not lose the others
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

    def _is_near(self, one: str, other: str) -> bool:
        objects = self.extract.objects
        return self._tools.same(one, other) or (objects is not None and objects.same(one, other))
