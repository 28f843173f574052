"""``reasc inspect``: what a calibration, or a file of rows, knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.console import print_json, print_lines, remark
from langchain_reasc.cli.options import AsJson, picture

if TYPE_CHECKING:
    from langchain_reasc.calibration import Calibration, Fingerprint, Learner, ObservationStore

_MAGIC: Final = b"SQLite format 3"


def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A calibration, or a store of calibration='online'.")],
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw it into this .svg or .png (needs the extra lab).", callback=picture)
    ] = None,
) -> None:
    """Say what a calibration, or a store of online learning, knows.

    [bold]Examples[/]

    reasc inspect calibration.json

    reasc inspect online.sqlite --plot online.svg
    """
    from langchain_reasc.calibration import Learner, Observations, ObservationStore, load_calibration
    from langchain_reasc.calibration.summary import calibration_lines
    from langchain_reasc.files import open_file

    begins = b""
    if path.is_file():
        with open_file(path) as file:
            begins = file.read(len(_MAGIC))
    if begins != _MAGIC:
        loaded, questions = load_calibration(path), Observations()
        calibration: Calibration | None = loaded
        held, lines = loaded.model_dump(mode="json"), [*_model(loaded.fingerprint), *calibration_lines(loaded)]
    else:
        store = ObservationStore.open(path)
        learner = Learner.of_store(store)
        calibration, questions = learner.calibration, learner.observations
        held, lines = _held(store, learner), [*_store(store, learner)]
    if as_json:
        print_json(held)
    else:
        print_lines(lines)
    if plot is not None:
        from langchain_reasc.calibration.pictures import draw_learned

        plot.parent.mkdir(parents=True, exist_ok=True)
        draw_learned(calibration, [*questions]).savefig(plot)
        remark(f"wrote {plot}")


def _held(store: "ObservationStore", learner: "Learner") -> dict[str, Any]:
    known, calibration = learner.observations, learner.calibration
    return {
        "fingerprint": store.fingerprint and store.fingerprint.model_dump(mode="json"),
        "state": {
            "seen": known.seen,
            "kept": len(known),
            "outcomes": known.outcomes,
            "restarts": known.restarts,
            "audits": known.audits._asdict(),
            "evidence": known.evidence,
            "kinds": known.kinds,
        },
        "calibration": calibration and calibration.model_dump(mode="json"),
    }


def _store(store: "ObservationStore", learner: "Learner") -> Iterator[str]:
    from langchain_reasc.calibration.summary import folded, learning_knows

    if store.fingerprint is None:
        yield from folded("Store", "nothing was learned yet")
        return
    yield from _model(store.fingerprint)
    yield from learning_knows(learner.observations, learner.calibration)


def _model(fingerprint: "Fingerprint") -> Iterator[str]:
    from langchain_reasc.calibration.summary import folded

    sampling = ", ".join(f"{name} {value}" for name, value in fingerprint.sampling.items() if value is not None)
    parts = [fingerprint.model or "not known", fingerprint.quantization, sampling]
    if fingerprint.answer:
        parts.append(f"answer {fingerprint.answer}")
    yield from folded("Model", ", ".join(filter(None, parts)))
