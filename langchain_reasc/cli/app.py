"""The commands, and how their errors are printed."""

from importlib.metadata import entry_points
from inspect import getdoc
from typing import Any

import typer
from rich.markup import escape
from typer.main import get_group

from langchain_reasc._version import __version__
from langchain_reasc.cli import ask, calibrate, inspect, probe
from langchain_reasc.cli.console import prepare_streams, print_error, stderr
from langchain_reasc.cli.help import Command, Group, command_showing
from langchain_reasc.cli.options import with_groups
from langchain_reasc.exceptions import ConfigurationError, ReASCError, how_to_install

_HELP = """
More reliable answers from a language model, for fewer tokens (ReASC).

[bold]reasc demo --plot[/]    see it work, on the shipped model

[bold]reasc ask "..."[/]    one question

[bold]reasc calibrate data.jsonl --model my.gguf[/]    can its confidence be trusted?

[bold]reasc inspect online.sqlite[/]    what was learned?

[bold]reasc record data.jsonl --model my.gguf --out pool.sqlite[/]    keep responses

[bold]reasc grade pool.sqlite --grader numeric[/]    grade them again

[bold]reasc replay pool.sqlite[/]    compare all methods on them

[bold]reasc bench recordings/[/]    and on every recording of a folder

[bold]reasc report pool.sqlite --out report.md[/]    the paper's tables and figures on them

[bold]reasc pool show pool.sqlite[/]    what does it hold, and how many tokens did it take?

[bold]reasc probe http://localhost:8000/v1[/]    what does a server support?

[bold]reasc serve --url http://localhost:8000[/]    the same for every OpenAI client that sets its base URL
"""


_HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class _Commands(Group):
    """A typer app that prints the library's errors in one line, and exits with a code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Not at import time, because these commands import modules next to this one.
        self.commands.update(get_group(_registered()).commands)

    def main(self, *arguments: Any, **options: Any) -> Any:
        prepare_streams()
        return super().main(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of a pipe has left; typer handles that.
            raise
        except (ReASCError, OSError) as error:
            print_error(error)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            stderr().print("interrupted")
            raise typer.Exit(130) from None


def _help(command: Any) -> str:
    """Join the lines of each paragraph, so that a terminal of any width can wrap them."""
    paragraphs = (getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.splitlines()) for paragraph in paragraphs)


def _add(group: typer.Typer, function: Any, **options: Any) -> None:
    """Add a function as a command."""
    options = {"cls": Command, "help": _help(function), **options}
    group.command(**options)(with_groups(function))


app = typer.Typer(
    cls=_Commands,
    help=_HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_HELP_OPTIONS,
)
_add(
    app,
    ask.ask,
    cls=command_showing(ask.SHOWN),
    epilog="All options are in docs/ask.md.",
)
_add(app, calibrate.calibrate)
_add(app, inspect.inspect)
_add(app, probe.probe)


_LAB = ("demo", "record", "grade", "bench", "replay", "report", "pool", "plot")
_EXTRAS = {**dict.fromkeys(_LAB, "lab"), "serve": "serve"}
"""Commands of other packages -> the extra that they need."""


def _registered() -> typer.Typer:
    """Return the commands that packages register as entry points: a function, or a
    module with several commands.
    """
    registered = typer.Typer()
    missing = set(_EXTRAS)
    for entry in entry_points(group="langchain_reasc.commands"):
        try:
            # A package may be installed without the extra that its command needs.
            command = entry.load()
        except ImportError:
            continue
        missing.discard(entry.name)
        panel = None if entry.name == "serve" else "Laboratory"
        if callable(command):
            _add(registered, command, name=entry.name, rich_help_panel=panel)
            continue
        # The entry point is a module with several commands.
        group = typer.Typer(
            cls=Group,
            help=_help(command),
            rich_markup_mode="rich",
            no_args_is_help=True,
            context_settings=_HELP_OPTIONS,
        )
        for operation in command.COMMANDS:
            _add(group, operation, name=operation.__name__.strip("_"))
        registered.add_typer(group, name=entry.name, rich_help_panel=panel)
    # With any options, or --help, they say how to install them.
    any_options = {
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "help_option_names": [],
    }
    for name in sorted(missing):
        registered.command(
            name,
            help=escape(how_to_install(_EXTRAS[name])),
            rich_help_panel="Not installed",
            context_settings=any_options,
        )(_not_installed)
    return registered


def _not_installed(context: typer.Context) -> None:
    extra = how_to_install(_EXTRAS[str(context.info_name)])
    raise ConfigurationError(f"`reasc {context.info_name}` is not installed. {extra}")


def main() -> None:
    """The entry point."""
    app(prog_name="reasc")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit."
    ),
) -> None:
    if version:
        typer.echo(f"reasc {__version__}")
        raise typer.Exit
