"""How ``--help`` looks: flags have no type, and a command with many options shows the
usual ones in panels.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption


class _PlainFlags:
    """Shows flags without a type."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        for param in self.get_params(ctx):
            if isinstance(param, TyperOption) and param.is_flag:
                param.metavar = ""
                param.show_default = bool(param.default)
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_PlainFlags, TyperCommand):
    """A command whose flags are shown without a type."""


class Group(_PlainFlags, TyperGroup):
    """The same for several commands below one name."""


def command_showing(panels: Mapping[str, Sequence[str]]) -> type[Command]:
    """Return a kind of command whose help has these options alone. The others work,
    too.

    Args:
        panels: title -> names of the parameters below it.
    """
    panel_of = {name: panel for panel, names in panels.items() for name in names}

    class ShortCommand(Command):
        def format_help(self, ctx: Any, formatter: Any) -> None:
            for param in self.params:
                if isinstance(param, TyperOption):
                    param.rich_help_panel = panel_of.get(str(param.name))
                    param.hidden = param.name not in panel_of
            super().format_help(ctx, formatter)

    return ShortCommand
