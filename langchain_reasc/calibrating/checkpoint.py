"""What calibrating without labels has learned so far, so that a call that was interrupted goes on from there."""

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from langchain_core.messages import BaseMessage
from pydantic import BaseModel, ConfigDict, ValidationError

from langchain_reasc.calibration import MadeOf, Observed, ObservedQuestion
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.runnable.observing import Finished, observed
from langchain_reasc.untrusted import read_text

__all__ = ["Checkpoint"]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str
    made_of: dict[str, dict[str, int | None]]
    question: ObservedQuestion


class Checkpoint:
    """A file with a line for each question that was asked: integers and scores, and never a text.

    A line is read again only where question, model, sampling and measures are the same; one that a crash cut in half is
    left out.

    Args:
        path: the file; it need not exist.
        holds_for: names model and sampling.
        measures: the candidates for scoring a response, in the order of the rows of scores.

    Raises:
        ConfigurationError: the file cannot be read, or not be written, which is found out before anything is paid for.
    """

    def __init__(self, path: str | os.PathLike[str], holds_for: str, measures: Sequence[Measure]) -> None:
        self.path, self._measures = Path(path), measures
        self._holds_for = f"{holds_for} {[(one.signal, one.score, one.window) for one in measures]}"
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] = {}
        try:
            written = read_text(self.path) if self.path.exists() else ""
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"cannot read the checkpoint {self.path}: {error}") from None
        self._append("\n" if written and not written.endswith("\n") else "")  # after a line that was cut in half
        for text in written.splitlines():
            try:
                line = _Line.model_validate_json(text)
            except ValidationError:
                continue
            if [len(row) for row in line.question.scores] == [len(line.question.answers)] * len(measures):
                self._lines[line.key] = line

    def holds(self, prompt: Sequence[BaseMessage]) -> bool:
        """Whether a question was asked."""
        return self._key(prompt) in self._lines

    def observed(self, prompt: Sequence[BaseMessage], made_of: MadeOf) -> Observed:
        """What sampling left of a question that it holds; scores made of another k or V than others' are left out."""
        line = self._lines[self._key(prompt)]
        fits = {signal: made_of.setdefault(signal, made) == made for signal, made in line.made_of.items()}
        rows = [at if fits.get(one.signal, True) else None for at, one in enumerate(self._measures)]
        return line.question.observed(rows, len(self._measures))

    def keep(self, prompt: Sequence[BaseMessage], finished: Finished) -> None:
        """Write what sampling left of a question.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        made_of: MadeOf = {}
        question = observed(finished, self._measures, made_of)
        kept = ObservedQuestion.of(question, range(len(self._measures)))
        line = _Line(key=self._key(prompt), made_of=made_of, question=kept)
        self._append(f"{line.model_dump_json()}\n")

    def _append(self, text: str) -> None:
        try:
            with self._lock, self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigurationError(f"cannot write the checkpoint {self.path}: {error.strerror}") from None

    def remove(self) -> None:
        """Remove the file: all is learned."""
        self.path.unlink(missing_ok=True)

    def _key(self, prompt: Sequence[BaseMessage]) -> str:
        asked = [self._holds_for, *([message.type, message.content] for message in prompt)]
        return hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()
