"""``reasc inspect``: what a calibration, or a file of rows, knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.console import in_options, print_json, print_lines
from langchain_reasc.cli.options import AsJson
from langchain_reasc.method.stopping import DEFAULT_BUDGET

if TYPE_CHECKING:
    from langchain_reasc.calibration import Learner, ObservationStore
    from langchain_reasc.models.fingerprint import Fingerprint

_MAGIC: Final = b"SQLite format 3"


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A calibration, or a store of calibration='online'."
        ),
    ],
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Say what a calibration, or a store of online learning, knows.

    [bold]Examples[/]

    reasc inspect calibration.json

    reasc inspect online.sqlite
    """
    from langchain_reasc.calibration import Learner, ObservationStore, load_calibration
    from langchain_reasc.calibration.summary import describe_calibration

    if plot is not None:
        raise typer.BadParameter(
            f"--plot is a command of its own: reasc plot {path} {plot}"
        )
    if is_store(path):
        store = ObservationStore.open(path)
        learner = Learner.from_store(store)
        data = _data(store, learner)
        lines = [*_store(store, learner)]
    else:
        calibration = load_calibration(path)
        data = calibration.model_dump(mode="json")
        description = describe_calibration(calibration)
        lines = [*description.lines(f"reasc ask --calibration {path}")]
        lines += _model(calibration.fingerprint)
        if calibration.large is not None:
            lines += _model(calibration.large, "Larger")
    if as_json:
        print_json(data)
    else:
        print_lines(in_options(line, "reasc calibrate") for line in lines)


def is_store(path: Path) -> bool:
    """Whether a file is a store of rows, and not a calibration."""
    from langchain_reasc.files import open_file

    if not path.is_file():
        return False
    # A calibration is JSON, a store SQLite, whatever their names are.
    with open_file(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _data(store: "ObservationStore", learner: "Learner") -> dict[str, Any]:
    observations = learner.observations
    calibration = learner.calibration
    data: dict[str, Any] = {
        "fingerprint": store.fingerprint and store.fingerprint.model_dump(mode="json"),
        "state": {
            "seen": observations.seen,
            "kept": len(observations),
            "outcomes": observations.outcomes,
            "restarts": observations.restarts,
            "audits": observations.audits._asdict(),
            "evidence": observations.evidence,
            "kinds": observations.kinds,
        },
        "calibration": calibration and calibration.model_dump(mode="json"),
    }
    escalations = store.escalations()
    if escalations:
        data["escalations"] = [state.model_dump(mode="json") for state in escalations]
    return data


def _store(store: "ObservationStore", learner: "Learner") -> Iterator[str]:
    from langchain_reasc.calibration import with_expectation
    from langchain_reasc.calibration.summary import (
        Entry,
        describe_escalation,
        describe_learning,
    )

    if store.fingerprint is None:
        yield from Entry("Store", "nothing was learned yet").lines()
        return
    escalations = store.escalations()
    for escalation in sorted(escalations, key=lambda state: -state.rows):
        yield from describe_escalation(escalation).lines()
    observations = learner.observations
    # A store of two models need not say that one model alone taught nothing.
    if observations.seen or not escalations:
        calibration = learner.calibration
        if calibration is not None:
            calibration = with_expectation(
                calibration,
                observations.newest,
                learner.measures,
                budget=DEFAULT_BUDGET,
            )
        yield from describe_learning(observations, calibration).lines()
    yield from _model(store.fingerprint)


def _model(fingerprint: "Fingerprint", name: str = "Model") -> Iterator[str]:
    from langchain_reasc.calibration.summary import Entry

    parts = [fingerprint.model or "not known", fingerprint.quantization]
    for option, value in fingerprint.sampling.items():
        if value is not None:
            parts.append(f"{option} {value}")
    if fingerprint.answer:
        parts.append(f"answer {fingerprint.answer}")
    yield from Entry(name, ", ".join(filter(None, parts))).lines()
