"""``reasc grade``: grade a pool again, without a new sample."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import ending, print_json, progress, remark, stdout
from langchain_reasc.cli.models import ModelOptions
from langchain_reasc.cli.options import AnswerField, AsJson, KeyVariable, MaxTokens, QuestionField, Seed, Urls, one_of
from langchain_reasc.exceptions import ConfigurationError, missing_extra
from langchain_reasc.files import read_text
from langchain_reasc_lab.cli.options import PoolPath

if TYPE_CHECKING:
    from langchain_reasc_lab.cli.graded import Compared
    from langchain_reasc_lab.pools import Pool
    from langchain_reasc_lab.pools.graders import Grader
    from langchain_reasc_lab.pools.grading import Labels


@dataclass
class JudgeOptions:
    """A model as the grader."""

    judge_model: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER:NAME", help="judge: a chat model of LangChain's, such as openai:gpt-4o-mini."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="judge: a GGUF file, hf:..., or with --url a name there."),
    ] = None
    url: Urls = None
    key_variable: KeyVariable = None
    judge_prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="judge: another prompt, with {question}, {references} and {answer}."),
    ] = None
    judge_reads: Annotated[
        str,
        typer.Option(
            metavar="answer|response",
            help="judge: what it is shown, the answer that was found or the whole response.",
            callback=one_of("answer", "response"),
        ),
    ] = "answer"
    temperature: Annotated[float, typer.Option(help="judge: its sampling temperature.")] = 0.0
    max_tokens: MaxTokens = None
    concurrency: Annotated[
        int | None, typer.Option(min=1, help=r"judge: answers in flight. \[default: 1 in this process, else 8]")
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="judge: what one answer may take; then it counts as undecided."),
    ] = None

    def check(self, grader: str) -> None:
        """Refuse options that go with another grader, and a time limit that is none."""
        defaults = vars(JudgeOptions())
        given = [name for name, value in vars(self).items() if value and value != defaults[name]]
        if grader != "judge" and given:
            raise typer.BadParameter(f"--{given[0].replace('_', '-')} goes with --grader judge, not with {grader}")
        if self.timeout is not None and not self.timeout > 0:
            raise typer.BadParameter(f"--timeout is in seconds, above 0; got {self.timeout:g}")

    @property
    def at_once(self) -> int:
        """The number of answers graded at once: several if the model is not in this process."""
        return self.concurrency or (8 if self.url or self.judge_model else 1)

    @contextmanager
    def open(self, pool: Path) -> "Iterator[Grader]":
        """Open a judge whose verdicts are kept beside the pool; print its bill at the end, also after an error."""
        from langchain_reasc_lab.pools.judge import GRADING_PROMPT, Judge, VerdictFile

        try:
            prompt = GRADING_PROMPT if self.judge_prompt is None else read_text(self.judge_prompt)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read the judge's prompt from {self.judge_prompt}: {error}") from error
        kept = VerdictFile.beside(pool)
        with self._open_model() as model:
            judge = Judge(model, prompt=prompt, reads=self.judge_reads, kept=kept)  # type: ignore[arg-type]
            try:
                yield judge
            finally:
                if judge.unclear is not None:
                    remark(f"a reply of {judge.name} that was no verdict ends {ending(judge.unclear)}")
                if judge.calls or judge.reused:
                    about = "about " if judge.estimated else ""
                    reused = f"; {judge.reused:,} verdicts were there already" if judge.reused else ""
                    remark(
                        f"{judge.name} was asked {judge.calls:,} times, for {about}{judge.bill['input_tokens']:,} "
                        f"prompt tokens and {judge.bill['output_tokens']:,} generated ones{reused}"
                    )

    def _open_model(self) -> Any:
        named_here = self.model is not None or bool(self.url)
        options: dict[str, Any] = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        if self.judge_model is None:
            if not named_here:
                raise ConfigurationError(
                    "which model judges? Name it with --judge-model, or --model, or --url and --model"
                )
            return ModelOptions(self.model, self.url, self.key_variable).open(**options)
        if named_here or self.key_variable is not None:
            raise ConfigurationError(
                "--judge-model names a chat model of LangChain's; leave out --model, --url and the key"
            )
        try:
            from langchain.chat_models import init_chat_model
        except ModuleNotFoundError:
            raise missing_extra("agents", "langchain") from None
        given = {name: value for name, value in options.items() if value is not None}
        try:
            return nullcontext(init_chat_model(self.judge_model, **given))
        except Exception as error:  # whatever the integration raises where a package, a key or the name is wrong
            raise ConfigurationError(f"--judge-model {self.judge_model}: {error}") from error


def grade(
    pool: PoolPath,
    *,
    grader: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What says whether an answer is right: exact, numeric, choice, math, alias, judge.",
            callback=one_of("exact", "numeric", "choice", "math", "alias", "judge"),
        ),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DATA", help="Take the right answers from this file.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, and change nothing; a judge is asked.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help=r"numeric: how far numbers may differ, such as 0.001. \[default: 0.0001]"),
    ] = None,
    judge: JudgeOptions,
    question_field: QuestionField = None,
    answer_field: AnswerField = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Grade recorded responses again, by another grader or by corrected labels, without a new sample.

    exact: the same answer, as pools are graded when they are recorded; either may leave out the unit. numeric: the
    same number up to a tolerance. choice: the same letter. math: equal as mathematics. alias: one of several accepted
    names, whatever its case, articles and punctuation. judge: what a model says that is shown the question, the
    accepted answers and the answer. Equal answers to a question are graded once.

    The verdicts and the grader's name are written into the pool. A judge's verdicts are kept beside the pool as soon
    as they come: after an interruption, or after --dry-run, nothing is paid for again.

    [bold]Examples[/]

    reasc grade pool.sqlite --grader numeric --tolerance 0.001 --dry-run

    reasc grade pool.sqlite --grader exact --data corrected.jsonl

    reasc grade pool.sqlite --grader judge --url http://gpu1:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc grade pool.sqlite --grader judge --judge-model openai:gpt-4o-mini
    """
    from langchain_reasc_lab.cli.graded import compare
    from langchain_reasc_lab.pools.grading import grade_pool, write_verdicts

    judge.check(grader)
    if tolerance is not None and grader != "numeric":
        raise typer.BadParameter("--tolerance goes with --grader numeric")
    labels = None if data is None else _labels(pool, data, question_field, answer_field)
    recorded = _read(pool, labels or {}, writable=not dry_run)
    opened = judge.open(recorded.path) if grader == "judge" else nullcontext(_grader(grader, recorded, tolerance))
    with opened as chosen, progress("Grading") as move:
        at_once = {"concurrency": judge.at_once, "seconds": judge.timeout}
        grading = grade_pool(recorded, chosen, labels=labels, on_answer=move, **at_once)  # type: ignore[arg-type]
    if grading.notice:
        remark(grading.notice)
    compared = compare(recorded, chosen, grading, labels, seed=seed)
    if not dry_run:
        write_verdicts(recorded, grading, labels)
    _show(compared, as_json=as_json)
    remark(f"nothing was written into {pool} (--dry-run)" if dry_run else f"the verdicts are in {pool}")


def _read(path: Path, labels: "Labels", *, writable: bool) -> "Pool":
    """Read the pool, and print what is to be known of it.

    Raises:
        PoolError: it cannot be read, or not be written where it shall be.
    """
    from langchain_reasc_lab.pools import read_pool
    from langchain_reasc_lab.pools.grading import check_writable

    pool = read_pool(path, labelled=labels)
    for note in pool.notes:
        remark(note)
    if writable:
        check_writable(pool)
    if unknown := sum(not one.references and one.id not in labels for one in pool.questions):
        remark(f"{unknown} questions of {path} have no right answer to compare with, and keep the verdicts they have")
    return pool


def _show(compared: "Compared", *, as_json: bool) -> None:
    if as_json:
        print_json(compared.as_data())
        return
    for part in compared.parts():
        stdout().print(part, soft_wrap=False)


def _labels(pool: Path, data: Path, question_field: str | None, answer_field: str | None) -> "Labels":
    from langchain_reasc_lab.data import read_data_set
    from langchain_reasc_lab.pools import read_ungraded
    from langchain_reasc_lab.pools.grading import labels_from

    questions = read_data_set(data, question_field=question_field, answer_field=answer_field).questions
    stored = read_ungraded(pool)
    labels, missing = labels_from(stored, questions)
    if missing:
        remark(f"{data} lacks {missing} of the {len(stored.questions)} questions; of these the pool's answers hold")
    if new := sum(one.id in labels and not one.references for one in stored.questions):
        remark(f"{new} questions had no right answer before: what they were given counts as wrong up to now")
    return labels


def _grader(name: str, pool: "Pool", tolerance: float | None) -> "Grader":
    from langchain_reasc_lab.pools import extractor_of
    from langchain_reasc_lab.pools.graders import GRADERS, Exact, Numeric

    if name == "exact":
        return Exact(extractor_of(pool.metadata))
    return Numeric(tolerance) if name == "numeric" else GRADERS[name]()
