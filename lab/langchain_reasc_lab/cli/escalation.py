"""The options of ``reasc replay --escalate-to``: two recordings, of a small and of a
large model.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_reasc.cli.console import print_json, progress, remark, stdout
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_lab.cli.options import ComparisonOptions, pool_measure

if TYPE_CHECKING:
    from langchain_reasc_lab.pools import MeasureSpec, Pool


@dataclass
class EscalationOptions:
    """A second pool, of a large model, and what its answers cost."""

    escalate_to: Annotated[
        Path | None,
        typer.Option(
            metavar="POOL",
            help="A large model's responses to the same questions: compare the ways to ask it only where it must be.",
        ),
    ] = None
    price_ratio: Annotated[
        float,
        typer.Option(
            metavar="N",
            help="What a token of the large model costs, in tokens of the small one.",
        ),
    ] = 10.0
    flat_cost: Annotated[
        bool,
        typer.Option(
            help="All answers of a model cost the same; --price-ratio is of answers."
        ),
    ] = False
    within: Annotated[
        list[float] | None,
        typer.Option(
            metavar="SHARE",
            help="How much more often than the large model differs from itself the answer may differ from it; several "
            r"are several rows. \[default: 0.02, 0.05, 0.1]",
        ),
    ] = None
    last: Annotated[
        int | None,
        typer.Option(
            min=1, help=r"Count so many of the last questions apart. \[default: half]"
        ),
    ] = None

    def run(
        self,
        path: Path,
        options: ComparisonOptions,
        *,
        shuffles: int,
        as_json: bool,
        plot: Path | None,
    ) -> None:
        """Compare, and print or draw what was found.

        Raises:
            ConfigurationError: a number is out of range.
            PoolError: a pool cannot be read, or the two do not hold the same questions.
        """
        from langchain_reasc_lab.escalation import (
            WITHIN,
            cascades_as_data,
            compare_cascades,
            draw_frontier,
            join,
            print_cascades,
        )
        from langchain_reasc_lab.pools import read_pool

        if self.escalate_to is None:
            raise ConfigurationError("name the large model's pool with --escalate-to")
        small, large = read_pool(path), read_pool(self.escalate_to)
        pair = join(
            small,
            large,
            price_ratio=self.price_ratio,
            flat=self.flat_cost,
            measure=_measure(small, options),
        )
        with progress("Replaying", quiet=shuffles < 2) as move:
            found = compare_cascades(
                pair,
                shuffles=shuffles,
                seed=options.seed,
                within=self.within or WITHIN,
                last=self.last,
                budget=options.max_samples or 16,
                on_progress=move,
            )
        if as_json:
            print_json(cascades_as_data(found))
        else:
            print_cascades(found, stdout())
        if plot is not None:
            from langchain_reasc_lab.replay.plots import save_figure

            remark(f"wrote {save_figure(draw_frontier(found), plot)}")

    def check(self, **others: Any) -> None:
        """Refuse options of one comparison in the other.

        Args:
            others: options of the comparison of one pool's methods -> whether they were
                given.

        Raises:
            ConfigurationError: naming them.
        """
        if self.escalate_to is not None:
            wrong, why = (
                [name for name, given in others.items() if given],
                "does not go with --escalate-to",
            )
        else:
            mine = {
                "price-ratio": self.price_ratio != 10.0,
                "flat-cost": self.flat_cost,
                "within": self.within is not None,
                "last": self.last is not None,
            }
            wrong, why = (
                [name for name, given in mine.items() if given],
                "needs --escalate-to POOL",
            )
        if wrong:
            raise ConfigurationError(f"--{wrong[0].replace('_', '-')} {why}")


def _measure(pool: "Pool", options: ComparisonOptions) -> "MeasureSpec | None":
    """Return what the small model's confidence is read by: the pool's scores or its
    first signal, if none was named.
    """
    if options.signal == "auto":
        raise ConfigurationError(
            "--signal auto needs questions to calibrate on; name a signal with "
            "--escalate-to"
        )
    if options.signal is None and not pool.has_scores and pool.signals is None:
        return None
    signal = options.signal or (
        "recorded"
        if pool.has_scores
        else (pool.signals.names[0] if pool.signals else "")
    )
    return pool_measure(signal, options.score, options.window)
