"""``reasc probe``: what an OpenAI-compatible server supports."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import print_json, remark, secret_in, stdout
from langchain_reasc.cli.models import import_package
from langchain_reasc.cli.options import AsJson, KeyVariable
from langchain_reasc.exceptions import ServerError

if TYPE_CHECKING:
    from langchain_reasc_openai import Capabilities


def probe(
    urls: Annotated[
        list[str],
        typer.Argument(
            metavar="URL...", help="Base URLs, such as http://localhost:8000/v1."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help=r"The model to ask. \[default: the only one]"
        ),
    ] = None,
    key_variable: KeyVariable = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for one answer.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Ask servers what they support: logprobs and how many, n, seeds, sampling parameters, streams.

    Sends about 15 requests of a few tokens. Several servers are compared.

    [bold]Examples[/]

    reasc probe http://localhost:8080

    reasc probe http://gpu1:8000 http://gpu2:8000 --model Qwen/Qwen2.5-7B-Instruct

    reasc probe https://api.openai.com/v1 --model gpt-4o-mini --key-variable OPENAI_API_KEY --json
    """
    key = None if key_variable is None else secret_in(key_variable)
    found: dict[str, Capabilities] = {}
    failed: list[str] = []
    for url in urls:
        try:
            found[url] = import_package("langchain_reasc_openai").probe(
                url, model=model, api_key=key, refresh=True, timeout=timeout
            )
        except ServerError as error:
            if len(urls) == 1:
                raise
            failed.append(str(error))
    if as_json:
        data = {url: one.model_dump(mode="json") for url, one in found.items()}
        print_json(data[urls[0]] if len(urls) == 1 else data)
    elif found:
        _show(found, alone=len(urls) == 1)
    if failed:
        raise ServerError("; ".join(failed))


def _show(found: "dict[str, Capabilities]", *, alone: bool) -> None:
    stdout().print(_table(found))
    for url, one in found.items():
        for notice in one.notices:
            remark(f"note: {notice}" if alone else f"note on {url}: {notice}")


def _table(found: "dict[str, Capabilities]") -> Any:
    from rich.table import Column, Table

    # Long names continue on the next line; a table would cut them.
    servers = [Column(url, overflow="fold") for url in found]
    table = Table("", *servers, box=None, pad_edge=False, header_style="bold")
    for title, show in _ROWS.items():
        table.add_row(title, *(show(one) for one in found.values()))
    return table


def _yes_or_no(value: bool | None, unknown: str = "not known") -> str:
    return {True: "yes", False: "no", None: unknown}[value]


def _logprobs(one: "Capabilities") -> str:
    if not one.logprobs:
        return _yes_or_no(one.logprobs)
    if one.top_logprobs:
        return f"yes, up to {one.top_logprobs} alternatives"
    return "yes, the chosen token's alone"


_ROWS: "dict[str, Callable[[Capabilities], str]]" = {
    "server": lambda one: " ".join(filter(None, [one.server, one.version])),
    "models": lambda one: ", ".join(one.models) or "not listed",
    "logprobs": _logprobs,
    "in streams": lambda one: _yes_or_no(one.streamed_logprobs),
    "of the reasoning": lambda one: _yes_or_no(
        one.reasoning_logprobs, "no reasoning seen"
    ),
    "token counts in streams": lambda one: _yes_or_no(one.streamed_usage),
    "n in one request": lambda one: _yes_or_no(one.n),
    "seed": lambda one: _yes_or_no(one.seed),
    "sampling parameters": lambda one: (
        ", ".join(
            ours if ours == name else f"{ours} (as {name})"
            for ours, name in one.samplers.items()
        )
        or "OpenAI's only"
    ),
    "token limit": lambda one: one.max_tokens,
}
