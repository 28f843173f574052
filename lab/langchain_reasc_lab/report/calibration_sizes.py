"""How many questions a calibration needs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from langchain_reasc.exceptions import PoolError
from langchain_reasc_lab.replay.methods import ASC_ROW, OFFLINE, Method, Split, calibrated_on, counting
from langchain_reasc_lab.report.blocks import Block, table_of
from langchain_reasc_lab.report.contents import table
from langchain_reasc_lab.report.parts import Column, Table
from langchain_reasc_lab.report.results import Cost, Results
from langchain_reasc_lab.report.sensitivity import cells, choice_columns, refused
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.variants import changed, key

__all__ = ["SIZES", "calibration_size"]

SIZES: Final = (16, 32, 64, 128, 256)


@table("calibration_size", "Questions that calibrate", paper="Figure 7")
def calibration_size(studies: Sequence[Study]) -> Table:
    """Algorithm 1 on more and on fewer questions, tested on the same ones."""
    cost = Cost.of(studies)

    def block(study: Study) -> Block:
        if study.measure is None:
            raise PoolError(str(study.uncalibrated))
        spec, sizes = study.measure, _sizes(study)
        arranged = study.arranged(sizes[-1])

        def methods_of(split: Split) -> Iterator[Method]:
            yield from (method for method in counting(study.settings.methods) if method.name == ASC_ROW)
            for size in sizes:
                first = replace(split, calibration=split.calibration[:size])
                made = calibrated_on(
                    study.pool, study.scores, first, spec, study.settings.methods, unlabelled_too=False
                )
                yield changed(study, key(study, OFFLINE, str(size)), made, made.offline, lambda rule: rule)

        outcomes = study.compare(methods_of, arranged=arranged)
        results = Results(study, outcomes, cost)
        rows, notes = [], list(_notes(study, arranged, cost))
        for size in sizes:
            at = key(study, OFFLINE, str(size))
            rows.append((size, *cells(results, at), _spent(study, arranged, size)))
            notes += refused(f"The calibration on {size} questions", outcomes[at])
        return Block(rows, notes)

    columns = [
        Column("Questions", ",.0f", "Calibration questions, with one labelled response to each."),
        *choice_columns(cost),
        Column("Calibration tokens", ",.0f", "What those responses cost, once for all; no other column holds it."),
    ]
    return table_of(studies, columns, block)


def _sizes(study: Study) -> list[int]:
    """Those that leave as many questions to be tested; of a pool of their own, those that it holds, and all of it."""
    if apart := study.pool.calibrating:
        return [*(size for size in SIZES if size < apart), apart]
    held = len(study.pool.questions)
    sizes = [size for size in SIZES if 2 * size <= held]
    if not sizes:
        raise PoolError(
            f"{study.name} holds {held} question{'s' if held > 1 else ''}; the smallest calibration is on {SIZES[0]}, "
            "and as many are to be left for a test"
        )
    return sizes


def _notes(study: Study, arranged: Sequence[Split], cost: Cost) -> Iterator[str]:
    shuffled = f"means over {len(arranged)} shuffles (seed {study.settings.seed})" if study.settings.shuffles else ""
    yield (
        f"{study.name}: all sizes are tested on the same {len(arranged[0].tested)} questions, "
        f"{shuffled or 'in recorded order'}; a smaller calibration is on the first questions of a larger one."
    )
    if study.measure == "auto":
        yield "The measure is chosen anew on the calibration responses of each size."
    yield cost.note(study)


def _spent(study: Study, arranged: Sequence[Split], size: int) -> float:
    """Tokens of the calibration responses, in the mean of the arrangements."""
    firsts = [split.firsts(split.calibration[:size]) for split in arranged]
    return float(sum(study.recorded.tokens[at] for pairs in firsts for at in pairs) / len(arranged))
