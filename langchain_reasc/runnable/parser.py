"""The last step of a chain that wants the answer and nothing else."""

from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.output_parsers import BaseGenerationOutputParser
from langchain_core.outputs import ChatGeneration, Generation

from langchain_reasc.runnable.account import whole_answer

__all__ = ["ReASCAnswerParser"]


class ReASCAnswerParser(BaseGenerationOutputParser[str | None]):
    """``prompt | ReASCRunnable(...) | ReASCAnswerParser()`` gives the winning answer; None where there was none.

    Where ReASC abstains, there is none. A long answer is whole here, also where the account has it shortened.
    """

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> str | None:
        """The answer that the account of a decision names.

        Raises:
            OutputParserException: the message is not one of ReASC's, or was changed since.
        """
        first = result[0] if result else None
        message: Any = first.message if isinstance(first, ChatGeneration) else None
        if message is None or not isinstance(message.response_metadata.get("reasc"), dict):
            raise OutputParserException(
                "ReASCAnswerParser reads response_metadata['reasc'], which this message does not have; put it right "
                "behind a ReASCRunnable"
            )
        try:
            return whole_answer(message)
        except LookupError as error:
            raise OutputParserException(
                "the answer is read from the message, as its account has it shortened, and the message was changed: "
                f"{error}"
            ) from error
