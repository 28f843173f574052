"""Pictures that commands draw."""

from pathlib import Path

import typer

from langchain_reasc.cli.checks import output_file

__all__ = ["picture"]


def picture(path: Path | None) -> Path | None:
    """A picture that can be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if path is None:
        return None
    from langchain_reasc_lab.replay.plots import picture_formats

    formats = picture_formats()
    if path.suffix.lower().removeprefix(".") not in formats:
        raise typer.BadParameter(
            f"{path} is no picture that can be drawn; its name ends in one of .{', .'.join(formats)}"
        )
    return output_file(path)
