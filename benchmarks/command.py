"""The command line of a study or trial."""

import argparse


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for ``python -m benchmarks.NAME``, whose help begins with the
    module's docstring as it is.
    """
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
