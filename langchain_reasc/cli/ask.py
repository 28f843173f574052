"""``reasc ask``: answer a question, and print the cost and why sampling stopped."""

import os
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from langchain_reasc.cli.console import in_options, print_json, remark, stderr, stdout
from langchain_reasc.cli.models import LargerModelOptions, ModelOptions, embedded
from langchain_reasc.cli.options import AsJson, PromptOptions
from langchain_reasc.exceptions import SamplingError

if TYPE_CHECKING:
    from rich.console import Console

    from langchain_reasc.calibration import Calibration
    from langchain_reasc.method.stopping import Decision
    from langchain_reasc.runnable.result import ReASCResult
    from langchain_reasc.sampling import SampledResponse

SHOWN: Final = {
    "Model": ("model", "url", "escalate_to"),
    "Question": ("system", "answer"),
    "Decision": ("calibration", "max_samples"),
    "Output": ("trace", "as_json"),
}
"""The options that the help shows; docs/ask.md has them all."""
_UNDECIDED = 3  # exit code
_OF_RESPONSE = ("answer", "score", "weight", "status", "used", "output_tokens")


def ask(
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION", help='The question; "-" reads it from stdin.'
        ),
    ],
    *,
    source: ModelOptions,
    larger: LargerModelOptions,
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="From reasc calibrate; none counts votes. "
            r"\[default: the shipped model's own; none with a larger model]",
        ),
    ] = None,
    allow_mismatch: Annotated[
        bool,
        typer.Option(help="Use a calibration that was measured on something else."),
    ] = False,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="When to stop: finite_horizon, asc, lead or another; with parameters: lead:k=3.",
        ),
    ] = None,
    max_samples: Annotated[int, typer.Option(min=1, help="The most samples.")] = 16,
    concurrency: Annotated[int, typer.Option(min=1, help="Samples drawn at once.")] = 4,
    asking: PromptOptions,
    seed: Annotated[
        int | None, typer.Option(min=0, help="For the same samples each time.")
    ] = None,
    trace: Annotated[
        bool, typer.Option(help="Show the samples as they arrive.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer one question, sampling only until the evidence is sufficient.

    Prints the answer to stdout, and how it was decided to stderr. The exit code is 3 if the answer is undecided because
    the budget was spent before the evidence was sufficient, or if no response has an answer to vote on. Then the text
    of a response is printed instead.

    [bold]Examples[/]

    reasc ask "Kira has 7 roses. Kira wants to have 12 roses. How many more roses does Kira need?" --trace

    reasc ask "What is 17 * 23?" --model qwen.gguf --calibration calibration.json

    reasc ask "What is 17 * 23?" --url http://localhost:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc ask "What is 17 * 23?" --model small.gguf --escalate-to openai:gpt-4o

    reasc ask - --model hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf --json < question.txt
    """
    from langchain_reasc.cli.live import LiveVotes

    text = _question(question)
    console = stderr()
    with LiveVotes(console, max_samples, quiet=as_json) as live:
        # A download shows a bar of its own.
        models = (source.model or "", larger.escalate_to or "")
        if not any(name.startswith("hf:") for name in models):
            live.start()
        # This takes seconds.
        from langchain_reasc.calibration import DEFAULT_RACE
        from langchain_reasc.method.registry import rule_from_text
        from langchain_reasc.runnable.runnable import ReASCRunnable

        def show(response: "SampledResponse", decision: "Decision") -> None:
            live.add(response, printed=trace)
            if trace:
                _show_sample(console, response, decision)

        stopping = None
        if rule is not None:
            stopping = rule_from_text(rule, budget=max_samples)
        prompting = asking.prompting()
        source.check()
        is_shipped = source.is_shipped and not larger.is_given
        loaded = _calibration(calibration, shipped=is_shipped)
        is_race = larger.is_given and rule is None and loaded is None
        if is_race:
            # One question is too few to learn from.
            stopping = DEFAULT_RACE
        # The model is asked as in calibration.
        confidence: Literal["stated"] | None = None
        if loaded is not None and loaded.fingerprint.ask_confidence is not None:
            confidence = "stated"
        with (
            larger.open(seed=seed) as escalation,
            source.open(**prompting.sampling, seed=seed) as model,
        ):
            # A download, with its bar, is over.
            live.start()
            reasc = ReASCRunnable(
                model=model,
                calibration=loaded,
                confidence=confidence,
                rule=stopping,
                max_samples=max_samples,
                concurrency=concurrency,
                answer=prompting.answer,
                fixed_prompt=prompting.prompt.fixed,
                allow_fingerprint_mismatch=allow_mismatch,
                **escalation,
            )
            messages = prompting.prompt.messages(text)
            result = reasc.solve(messages, {"callbacks": [live]}, on_response=show)
    if as_json:
        print_json(_as_data(result))
    else:
        _show(result)
    if is_race:
        remark(
            f"note: {DEFAULT_RACE.votes} equal votes of the smaller model stand, which "
            "promises nothing; reasc calibrate learns which answers may stand, for "
            "--calibration"
        )
    if source.is_shipped:
        remark(
            "note: the shipped model can only solve arithmetic word problems; --model "
            "takes any chat GGUF"
        )
    # An exit code of 3 would promise a text on stdout.
    if not (result.answer or result.message.text):
        raise SamplingError(f"{result.summary()}; their texts are empty")
    if result.undecided:
        raise typer.Exit(_UNDECIDED)


def _question(question: str) -> str:
    """Return the question, which may come from stdin.

    Raises:
        BadParameter: the question is empty.
    """
    if question == "-":
        text = typer.get_text_stream("stdin").read()
    else:
        # If the locale is ASCII, Python passes other letters as surrogate bytes, which
        # are UTF-8.
        text = os.fsencode(question).decode("utf-8", "replace")
    if not text.strip():
        raise typer.BadParameter("the question is empty")
    return text.strip()


def _show(result: "ReASCResult") -> None:
    """Print the answer, how it was decided, what was spent, the votes, and notices."""
    from langchain_reasc.answers import without_reasoning
    from langchain_reasc.complaints import shortened
    from langchain_reasc.runnable.result import cost, votes

    answer = result.answer
    if answer is None:
        text = result.message.text
        answer = (without_reasoning(text) or text).strip()
    if answer:
        stdout().print(answer, markup=False, soft_wrap=True)
        style = "bold yellow" if result.undecided else "bold"
        summary = in_options(result.summary())
        stderr().print(summary, style=style, markup=False, soft_wrap=True)
    shares = [
        f"{shortened(name)}: {evidence:.2f}" for name, _, evidence in votes(result)
    ]
    remark(f"{cost(result)}; evidence {', '.join(shares) or 'none'}")
    for notice in result.notices:
        remark(f"note: {notice}")


def _calibration(chosen: str | None, *, shipped: bool) -> "Calibration | None":
    from langchain_reasc.calibration import load_calibration

    if chosen == "none":
        return None
    if chosen is not None:
        return load_calibration(chosen)
    if not shipped:
        return None
    path = embedded("calibration.json")
    return load_calibration(path) if path.exists() else None


def _show_sample(
    console: "Console", response: "SampledResponse", decision: "Decision"
) -> None:
    parts = [f"#{response.index + 1}", f"answer {response.answer}"]
    if response.asked:
        parts[0] = f"{response.asked} model {parts[0]}"
    if response.score is not None:
        parts.append(f"score {response.score:.3f}")
    parts.append(f"weight {response.weight:.2f}")
    # At the gate no vote is counted.
    if decision.reason == "gate":
        parts.append("passes the gate")
    else:
        parts.append(f"posterior of the votes {decision.posterior:.3f}")
        parts.append("stop" if decision.stop else "go on")
    console.print("  ".join(parts), markup=False)
    text = " ".join(str(response.message.text).split()) if response.message else ""
    console.print(f"    {text}", markup=False, style="dim")


def _as_data(result: "ReASCResult") -> dict[str, Any]:
    from langchain_reasc.runnable.result import votes

    responses = []
    for response in result.responses:
        text = str(response.message.text) if response.message else None
        fields = {name: getattr(response, name) for name in _OF_RESPONSE}
        if response.asked:
            fields["asked"] = response.asked
        responses.append({"text": text, **fields})
    account = dict(result.message.response_metadata["reasc"])
    account.pop("answer", None)
    return {
        "answer": result.answer,
        "text": str(result.message.text),
        "summary": result.summary(),
        "undecided": result.undecided,
        "votes": {answer: count for answer, count, _ in votes(result)},
        **account,
        "responses": responses,
    }
