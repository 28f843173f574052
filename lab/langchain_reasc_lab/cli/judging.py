"""Which model judges, and what it costs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from langchain_reasc.cli.console import ending, remark
from langchain_reasc.cli.models import open_model
from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.untrusted import read_text

if TYPE_CHECKING:
    from langchain_reasc_lab.pools.judge import Judge

__all__ = ["Judging", "a_judge", "bill_of", "needs_no_judge"]

_ELSEWHERE = 8  # answers at once where the model is not in this process


@dataclass(frozen=True, slots=True)
class Judging:
    """A judge that is there.

    Attributes:
        judge: the grader.
        at_once: how many answers it is asked of at once.
    """

    judge: "Judge"
    at_once: int


def needs_no_judge(grader: str, options: Mapping[str, Any]) -> None:
    """Refuse options of a judge where none is asked."""
    if given := [name for name, value in options.items() if value]:
        raise typer.BadParameter(f"--{given[0].replace('_', '-')} goes with --grader judge, not with {grader}")


@contextmanager
def a_judge(
    pool: Path,
    *,
    judge_model: str | None,
    model: str | None,
    url: Sequence[str] | None,
    key_variable: str | None,
    judge_prompt: Path | None,
    reads: Any,
    temperature: float,
    max_tokens: int | None,
    timeout: float | None,
    concurrency: int | None,
) -> Iterator[Judging]:
    """A judge whose verdicts are kept beside the pool; at the end its bill is told, whatever happened.

    Raises:
        ConfigurationError: no model was named, or two, or the prompt cannot be read.
        MissingExtraError: what the model needs is not installed.
    """
    from langchain_reasc_lab.pools.judge import GRADING_PROMPT, Judge, VerdictFile

    if timeout is not None and not timeout > 0:
        raise typer.BadParameter(f"--timeout is in seconds, above 0; got {timeout:g}")
    prompt = GRADING_PROMPT if judge_prompt is None else _text(judge_prompt)
    options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
    kept = VerdictFile.beside(pool)
    with _opened(judge_model, model, url, key_variable, options) as chat_model:
        judge = Judge(chat_model, prompt=prompt, reads=reads, kept=kept)
        try:
            yield Judging(judge, concurrency or (_ELSEWHERE if url or judge_model else 1))
        finally:
            if judge.unclear is not None:
                remark(f"a reply of {judge.name} that was no verdict ends {ending(judge.unclear)}")
            if judge.calls or judge.reused:
                remark(bill_of(judge))


def bill_of(judge: "Judge") -> str:
    """What a judge has cost, in a sentence."""
    about = "about " if judge.estimated else ""
    reused = f"; {judge.reused:,} verdicts were there already" if judge.reused else ""
    return (
        f"{judge.name} was asked {judge.calls:,} times, for {about}{judge.bill['input_tokens']:,} prompt tokens and "
        f"{judge.bill['output_tokens']:,} generated ones{reused}"
    )


def _opened(
    named: str | None, model: str | None, url: Sequence[str] | None, key: str | None, options: dict[str, Any]
) -> Any:
    if named is None and model is None and not url:
        raise ConfigurationError("which model judges? Name it with --judge-model, or --model, or --url and --model")
    if named is None:
        return open_model(model, urls=url, key_variable=key, **options)
    if model is not None or url or key is not None:
        raise ConfigurationError(
            "--judge-model names a chat model of LangChain's; leave out --model, --url and the key"
        )
    try:
        from langchain.chat_models import init_chat_model
    except ModuleNotFoundError:
        raise missing_extra("agents", "langchain") from None
    try:
        return nullcontext(init_chat_model(named, **{name: one for name, one in options.items() if one is not None}))
    except (
        Exception
    ) as error:  # each integration raises something of its own where a package, a key or the name is wrong
        raise ConfigurationError(f"--judge-model {named}: {error}") from error


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the judge's prompt from {path}: {error}") from error
