"""``reasc probe``: what an OpenAI-compatible server supports."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

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
    openai = import_package("langchain_reasc_openai")
    servers: dict[str, Capabilities] = {}
    failures = []
    for url in urls:
        try:
            servers[url] = openai.probe(
                url, model=model, api_key=key, refresh=True, timeout=timeout
            )
        except ServerError as error:
            # With several servers, the others are still shown.
            if len(urls) == 1:
                raise
            failures.append(str(error))
    if as_json:
        data = {url: server.model_dump(mode="json") for url, server in servers.items()}
        print_json(data[urls[0]] if len(urls) == 1 else data)
    elif servers:
        _show(servers, alone=len(urls) == 1)
    if failures:
        raise ServerError("; ".join(failures))


def _show(servers: "dict[str, Capabilities]", *, alone: bool) -> None:
    from rich.table import Column, Table

    # Long names continue on the next line; a table would cut them.
    columns = [Column(url, overflow="fold") for url in servers]
    table = Table("", *columns, box=None, pad_edge=False, header_style="bold")
    for title, show in _ROWS.items():
        table.add_row(title, *map(show, servers.values()))
    stdout().print(table)
    for url, server in servers.items():
        for notice in server.notices:
            remark(f"note: {notice}" if alone else f"note on {url}: {notice}")


def _yes_or_no(value: bool | None, unknown: str = "not known") -> str:
    return {True: "yes", False: "no", None: unknown}[value]


def _logprobs(server: "Capabilities") -> str:
    if not server.logprobs:
        return _yes_or_no(server.logprobs)
    if server.top_logprobs:
        return f"yes, up to {server.top_logprobs} alternatives"
    return "yes, the chosen token's alone"


def _samplers(server: "Capabilities") -> str:
    names = []
    for our_name, name in server.samplers.items():
        names.append(our_name if our_name == name else f"{our_name} (as {name})")
    return ", ".join(names) or "OpenAI's only"


_ROWS: "dict[str, Callable[[Capabilities], str]]" = {
    "server": lambda server: " ".join(filter(None, [server.server, server.version])),
    "models": lambda server: ", ".join(server.models) or "not listed",
    "logprobs": _logprobs,
    "in streams": lambda server: _yes_or_no(server.streamed_logprobs),
    "of the reasoning": lambda server: _yes_or_no(
        server.reasoning_logprobs, "no reasoning seen"
    ),
    "token counts in streams": lambda server: _yes_or_no(server.streamed_usage),
    "n in one request": lambda server: _yes_or_no(server.n),
    "seed": lambda server: _yes_or_no(server.seed),
    "sampling parameters": _samplers,
    "token limit": lambda server: server.max_tokens,
}
