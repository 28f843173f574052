"""What ``reasc ask`` shows on a terminal while it asks: the first response as it comes,
and one line with the votes.

All of it is erased in the end, so that a terminal keeps what a file would get.
"""

from collections import Counter
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from langchain_core.callbacks.base import BaseCallbackHandler
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from langchain_reasc.cli.console import harmless

if TYPE_CHECKING:
    from langchain_reasc.sampling import SampledResponse

_LINES: Final = 6  # of the first response
# Characters by which the beginning of the text moves on: each move wraps it anew.
_PIECE: Final = 2_000
_LONGEST: Final = 24  # characters of an answer


class LiveVotes(BaseCallbackHandler, AbstractContextManager["LiveVotes"]):
    """Shows the first response and the votes so far, from :meth:`start` until the
    ``with`` block ends.

    Args:
        console: the terminal; lines printed there meanwhile stand above.
        most: the most samples.
        quiet: whether to show nothing, as without a terminal.

    Attributes:
        shows_text: whether anything is shown. Then a model that samples in parallel
            gives each sample as a stream.
    """

    def __init__(self, console: Console, most: int, *, quiet: bool) -> None:
        self._most = most
        self._text = ""
        self._status = "loading the model"
        self._first: Any = None  # the run of the first response
        self._asked: str | None = None
        self._votes = Counter[str | None]()
        self._spinner = Spinner("line" if console.options.ascii_only else "dots")
        self.shows_text = console.is_terminal and not (
            console.is_dumb_terminal or quiet
        )
        self._live = Live(self, console=console, transient=True, refresh_per_second=8)

    def start(self) -> None:
        """Begin to show it."""
        if self.shows_text:
            self._live.start(refresh=True)

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Yield the end of the first response, and the line with the votes."""
        text = self._text[max(0, len(self._text) // _PIECE - 1) * _PIECE :]
        lines = Text(text, style="dim").wrap(console, options.max_width)
        # Leave room for the line with the votes.
        yield from lines[-max(1, min(_LINES, console.height - 2)) :]
        line = Text(f"{self._spinner.render(console.get_time())} {self._status}")
        line.truncate(
            options.max_width, overflow="crop" if options.ascii_only else "ellipsis"
        )
        yield line

    def on_chat_model_start(self, *_: Any, run_id: Any, **__: Any) -> None:
        """Tell the first response from the others."""
        if self._first is None:
            self._first = run_id
            self._status = self._count()
            if self.shows_text:
                # Short responses may all have ended before the next frame.
                self._live.refresh()

    def on_llm_new_token(
        self, token: Any, *, chunk: Any = None, run_id: Any, **_: Any
    ) -> None:
        """Show more of the first response."""
        if run_id == self._first:
            self._text += harmless(str(token) if chunk is None else chunk.text)

    def add(self, response: "SampledResponse", *, printed: bool) -> None:
        """Count a response that has ended; hide its text once it is ``printed``."""
        if printed:
            self._text = ""
        # The votes for the larger model begin anew.
        if response.asked != self._asked:
            self._votes.clear()
        self._asked = response.asked
        self._votes[response.answer] += 1
        self._status = self._count()

    def _count(self) -> str:
        model = f"{self._asked} model: " if self._asked else ""
        count = f"{model}{self._votes.total()} of at most {self._most}"
        votes = []
        for answer, number in self._votes.most_common():
            if answer is not None:
                votes.append(f"{_short(answer)}: {number}")
                # The first number says what is counted.
                if len(votes) == 1:
                    votes[0] += " vote" if number == 1 else " votes"
        if not votes:
            return count
        return f"{count}; {', '.join(votes)}"


def _short(answer: str) -> str:
    line = harmless(" ".join(answer.split()))
    if len(line) > _LONGEST:
        return f"{line[:_LONGEST]}..."
    return line
