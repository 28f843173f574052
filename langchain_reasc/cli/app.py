"""The commands, and how they fail."""

from importlib.metadata import entry_points
from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperGroup

from langchain_reasc._version import __version__
from langchain_reasc.cli import ask, calibrate, probe
from langchain_reasc.cli.console import log_harmlessly, stderr
from langchain_reasc.cli.wording import in_options, speak_plainly
from langchain_reasc.exceptions import ReASCError

__all__ = ["app", "main"]

_HELP = """
More reliable answers from a language model, for fewer tokens (ReASC).

[bold]reasc demo --plot[/]    see it work, on the small model that comes along

[bold]reasc ask "..."[/]    one question

[bold]reasc calibrate data.jsonl --model my.gguf[/]    can its confidence be trusted?

[bold]reasc record data.jsonl --model my.gguf --out pool.sqlite[/]    keep responses

[bold]reasc grade pool.sqlite --grader numeric[/]    say anew which of them are right

[bold]reasc replay pool.sqlite[/]    compare pass@1, SC, ESC, ASC and ReASC on them

[bold]reasc report pool.sqlite --out report.html[/]    the paper's tables and figures on them

[bold]reasc pool show pool.sqlite[/]    what does it hold, and what has it cost?

[bold]reasc probe http://localhost:8000/v1[/]    what does a server support?
"""


class _Commands(TyperGroup):
    """Turns the library's errors into one line and an exit code, whoever calls the app."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        speak_plainly()
        log_harmlessly()
        return super().main(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ReASCError as error:
            stderr().print(f"[bold red]error:[/] {_escaped(error)}", soft_wrap=True, highlight=False)
            raise typer.Exit(1) from None
        except BrokenPipeError:  # the reader of a pipe has left; typer knows what to do
            raise
        except OSError as error:
            stderr().print(f"[bold red]error:[/] {_escaped(error)}", soft_wrap=True, highlight=False)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            stderr().print("interrupted")
            raise typer.Exit(130) from None


def _reflowed(docstring: str) -> str:
    """Paragraphs of one line each, which a terminal of any width breaks for itself."""
    return "\n\n".join(" ".join(paragraph.splitlines()) for paragraph in cleandoc(docstring).split("\n\n"))


app = typer.Typer(
    cls=_Commands,
    help=_HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (ask.ask, calibrate.calibrate, probe.probe):
    app.command(help=_reflowed(command.__doc__ or ""))(command)


def _add_laboratory() -> None:
    """Add the commands that packages register as entry points: functions, or a module of several under one name."""
    for entry in entry_points(group="langchain_reasc.commands"):
        command, panel = entry.load(), "Laboratory"
        if callable(command):
            app.command(entry.name, help=_reflowed(command.__doc__ or ""), rich_help_panel=panel)(command)
            continue
        several = typer.Typer(
            help=_reflowed(command.__doc__ or ""),
            rich_markup_mode="rich",
            no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        for operation in command.COMMANDS:
            several.command(operation.__name__.strip("_"), help=_reflowed(operation.__doc__ or ""))(operation)
        app.add_typer(several, name=entry.name, rich_help_panel=panel)


_add_laboratory()


def main() -> None:
    """The entry point."""
    app(prog_name="reasc")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and exit.")
) -> None:
    if version:
        typer.echo(f"reasc {__version__}")
        raise typer.Exit


def _escaped(error: Exception) -> str:
    from rich.markup import escape

    return escape(in_options(" ".join(str(error).split())))
