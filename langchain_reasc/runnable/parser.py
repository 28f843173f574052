"""The last step of a chain that wants the answer and nothing else."""

from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.output_parsers import BaseGenerationOutputParser
from langchain_core.outputs import ChatGeneration, Generation

__all__ = ["ReASCAnswerParser"]


class ReASCAnswerParser(BaseGenerationOutputParser[str | None]):
    """``prompt | ReASCRunnable(...) | ReASCAnswerParser()`` gives the winning answer; None where there was none."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> str | None:
        """The answer that the account of a decision names.

        Raises:
            OutputParserException: the message is not one of ReASC's.
        """
        first = result[0] if result else None
        account: Any = first.message.response_metadata.get("reasc") if isinstance(first, ChatGeneration) else None
        if not isinstance(account, dict):
            raise OutputParserException(
                "ReASCAnswerParser reads response_metadata['reasc'], which this message does not have; put it right "
                "behind a ReASCRunnable"
            )
        answer: str | None = account["answer"]
        return answer
