"""``reasc ask``: a question in, the answer out, with what was spent and why it stopped."""

import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from langchain_reasc.cli.console import ending, in_options, print_json, remark, stderr, stdout
from langchain_reasc.cli.models import embedded, open_model
from langchain_reasc.cli.options import (
    AnswerGiven,
    AsJson,
    KeyVariable,
    MaxTokens,
    Model,
    ModelClass,
    ModelKwargs,
    PresetName,
    System,
    Temperature,
    TemplateText,
    Urls,
    one_of,
    prompting,
    read_template,
)
from langchain_reasc.exceptions import ConfigurationError, SamplingError

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration
    from langchain_reasc.method.stopping import Decision, StoppingRule
    from langchain_reasc.runnable.result import ReASCResult, SampledResponse

__all__ = ["ask"]

_UNDECIDED = 3  # exit code


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help='The question; "-" reads it from stdin.')],
    model: Model = None,
    url: Urls = None,
    key_variable: KeyVariable = None,
    model_class: ModelClass = None,
    model_kwargs: ModelKwargs = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help=r"From reasc calibrate; none counts votes. \[default: the shipped model's own]"
        ),
    ] = None,
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Use a calibration that was measured on something else.")
    ] = False,
    safeguard: Annotated[
        str,
        typer.Option(
            metavar="default|paper",
            help="default: gate and weights as far as the calibration vouches for them; paper: the paper's rule.",
            callback=one_of("default", "paper"),
        ),
    ] = "default",
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="When to stop: finite_horizon, cannot_catch_up, asc or another; with parameters: esc:window=3.",
        ),
    ] = None,
    max_samples: Annotated[int, typer.Option(min=1, help="Samples at most.")] = 16,
    concurrency: Annotated[int, typer.Option(min=1, help="Samples drawn at once.")] = 4,
    system: System = None,
    template: TemplateText = None,
    answer: AnswerGiven = None,
    preset: PresetName = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For the same samples each time.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the samples as they arrive.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer one question, sampling only as often as the evidence asks for.

    The answer goes to stdout, how sure it is to stderr. The exit code is 3 where the answer is undecided, because the
    budget was spent before the evidence was sufficient.

    [bold]Examples[/]

    reasc ask "Kira has 7 roses. Kira wants to have 12 roses. How many more roses does Kira need?" --trace

    reasc ask "What is 17 * 23?" --model qwen.gguf --calibration calibration.json

    reasc ask "What is 17 * 23?" --url http://localhost:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc ask - --model hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf --json < question.txt
    """
    from langchain_reasc.data import Template
    from langchain_reasc.runnable.runnable import ReASCRunnable

    # Where the terminal is said to speak ASCII, Python passes other letters on as bytes; they are UTF-8 all the same.
    given = os.fsencode(question).decode("utf-8", "replace")
    text = (typer.get_text_stream("stdin").read() if question == "-" else given).strip()
    if not text:
        raise typer.BadParameter("the question is empty")
    stopping = None if rule is None else _rule(rule, budget=max_samples)
    given_template = read_template(template, system=system)
    how = prompting(preset, None, model=model, template=given_template, answer=answer, temperature=temperature)
    prompt = (how.template or Template()).after(system)
    shipped = model is None and not url and model_class is None
    known = _calibration(calibration, shipped=shipped)
    options: dict[str, Any] = {**how.sampling, "max_tokens": max_tokens, "seed": seed}
    source: dict[str, Any] = {"urls": url, "key_variable": key_variable}
    source |= {"model_class": model_class, "model_kwargs": model_kwargs}
    with open_model(model, **source, **options) as chat_model:
        reasc = ReASCRunnable(
            model=chat_model,
            calibration=known,
            # As in calibration: stated confidences hold for a model that is asked for them.
            ask_confidence=known is not None and known.fingerprint.ask_confidence is not None,
            rule=stopping,
            max_samples=max_samples,
            concurrency=concurrency,
            answer=how.answer,
            fixed_prompt=prompt.fixed,
            safeguard=cast(Literal["default", "paper"], safeguard),
            allow_fingerprint_mismatch=allow_mismatch,
        )
        result = reasc.solve(prompt.messages(text), on_response=_show_sample if trace else None)
    if as_json:
        print_json(_as_data(result))
    else:
        _show(result)
    if shipped:
        remark("note: the shipped model knows arithmetic word problems and nothing else; --model takes any chat GGUF")
    if result.answer is None:
        raise SamplingError(_without_answer(result))
    if result.undecided:
        raise typer.Exit(_UNDECIDED)


def _show(result: "ReASCResult") -> None:
    if result.answer is not None:
        stdout().print(result.answer, markup=False, soft_wrap=True)
        style = "bold yellow" if result.undecided else "bold"
        stderr().print(in_options(result.summary()), style=style, markup=False, soft_wrap=True)
    for line in _account(result):
        remark(line)


def _account(result: "ReASCResult") -> Iterator[str]:
    """Yield what was spent, the votes, and notices."""
    from langchain_reasc.runnable.summary import cost, shortened, votes

    voted = ", ".join(f"{shortened(answer)}: {evidence:.2f}" for answer, _, evidence in votes(result))
    yield f"{cost(result)}; evidence {voted or 'none'}"
    yield from (f"note: {notice}" for notice in result.notices)


def _without_answer(result: "ReASCResult") -> str:
    end = ending(str(result.message.text))
    return (
        f"no answer was found; samples: {result.decision.samples}, one of which ends {end}. --answer says where the "
        "answer is, --max-tokens allows longer responses"
    )


def _calibration(chosen: str | None, *, shipped: bool) -> "Calibration | None":
    from langchain_reasc.calibration import load_calibration

    if chosen == "none":
        return None
    if chosen is not None:
        return load_calibration(chosen)
    own = embedded("calibration.json")
    return load_calibration(own) if shipped and own.exists() else None


def _rule(given: str, *, budget: int) -> "StoppingRule":
    """Return the rule of that name and parameters; one that looks ahead does so to this budget.

    Raises:
        ConfigurationError: there is no such rule, it needs parameters, or refuses one.
    """
    from langchain_reasc.method.registry import rule_named, rules

    name, _, listed = given.partition(":")
    known = rules()
    parameters: dict[str, object] = {"budget": budget} if hasattr(known.get(name), "budget") else {}
    try:
        return rule_named(
            name, parameters | dict(map(_parameter, re.split(r",(?=\s*\w+\s*=)", listed) if listed else ()))
        )
    except ConfigurationError as error:
        if name not in known:
            raise
        raise ConfigurationError(f"{error}; parameters follow the name, as in --rule esc:window=3") from None


def _parameter(text: str) -> tuple[str, object]:
    """Parse ``name=value``; a value that is not JSON is a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(f"{text!r} is no parameter of a rule, which is given as name=value")
    try:
        return name.strip(), _hashable(json.loads(value))
    except ValueError:
        return name.strip(), value.strip()


def _hashable(value: Any) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _show_sample(response: "SampledResponse", decision: "Decision") -> None:
    text = " ".join(str(response.message.text).split()) if response.message else ""
    score = "" if response.score is None else f"  score {response.score:.3f}"
    passed = decision.reason == "gate"  # then no vote is counted
    after = "passes the gate" if passed else f"P = {decision.posterior:.3f}  {'stop' if decision.stop else 'go on'}"
    console = stderr()
    console.print(
        f"#{response.index + 1}  answer {response.answer}{score}  weight {response.weight:.2f}  {after}",
        markup=False,
    )
    console.print(f"    {text}", markup=False, style="dim")


def _as_data(result: "ReASCResult") -> dict[str, Any]:
    from langchain_reasc.runnable.summary import votes

    account = result.message.response_metadata["reasc"]
    return {
        "answer": result.answer,
        "text": str(result.message.text),
        "summary": result.summary(),
        "undecided": result.undecided,
        "votes": {answer: count for answer, count, _ in votes(result)},
        **{name: value for name, value in account.items() if name != "answer"},
        "responses": [
            {
                "text": str(response.message.text) if response.message else None,
                "answer": response.answer,
                "score": response.score,
                "weight": response.weight,
                "status": response.status,
                "used": response.used,
                "output_tokens": response.output_tokens,
            }
            for response in result.responses
        ],
    }
