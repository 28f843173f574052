"""Options that several of the laboratory's commands share, and their checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langchain_reasc.cli.console import remark
from langchain_reasc.cli.options import (
    FieldOptions,
    Prompting,
    PromptOptions,
    PTarget,
    Score,
    Seed,
    Window,
    measure_spec,
    output_file,
    require_no_details,
)
from langchain_reasc.exceptions import ConfigurationError, PoolError

if TYPE_CHECKING:
    from langchain_reasc_lab.data import DataFormat, Preset
    from langchain_reasc_lab.pools import MeasureSpec, Pool
    from langchain_reasc_lab.replay.methods import MethodSettings

_UNKNOWN_FAMILY: Final = (
    "the paper's is unknown, as the model's name is of none of its families"
)


def text_output(path: Path | None) -> Path | None:
    """Check that a file can be written; ``-`` is stdout."""
    return path if path == Path("-") else output_file(path)


def picture(path: Path | None) -> Path | None:
    """Check that a picture can be drawn into this file.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if path is None:
        return None
    from langchain_reasc_lab.replay.plots import empty_figure

    formats = sorted(empty_figure(1, 1).canvas.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in formats:
        raise typer.BadParameter(
            f"cannot draw {path}: the file must end in .{', .'.join(formats)}"
        )
    return output_file(path)


def _all(value: str | None) -> str | None:
    if value not in (None, "all"):
        raise typer.BadParameter(f"takes 'all', got {value!r}")
    return value


AllSignals = Annotated[
    str | None,
    typer.Option(
        "--signals",
        metavar="all",
        help="all: rows for auto and for every signal of the pool.",
        callback=_all,
    ),
]
PoolPath = Annotated[Path, typer.Argument(metavar="POOL", help="A recorded pool.")]


def pool_measure(signal: str, score: str, window: int) -> "MeasureSpec":
    """Return the measure that ``--signal``, ``--score`` and ``--window`` name;
    ``recorded`` for a pool's own scores.

    Raises:
        ConfigurationError: an unknown name, or a score or window beside a signal that
            settles them.
    """
    if signal == "recorded":
        require_no_details(signal, score, window)
        return "recorded"
    return measure_spec(signal, score, window)


def _check_format(value: str) -> str:
    from langchain_reasc_lab.data import format_of

    if value != "auto":
        format_of(value, {})
    return value


def _check_preset(value: str | None) -> str | None:
    from langchain_reasc_lab.data import preset_of

    if value not in (None, "auto"):
        preset_of(value)
    return value


@dataclass
class FormatOptions(FieldOptions):
    """Where questions and answers are in a file, by the published form of its data set
    or by fields.
    """

    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The data set that DATA is of, by its published form: gsm8k, math500, omni-math, gpqa, strategyqa, "
            "last-letters, nq-open; any, for the usual fields; auto recognizes it.",
            callback=_check_format,
        ),
    ] = "auto"


@dataclass
class PresetOptions(PromptOptions):
    """How each question is asked, with presets for kinds of tasks."""

    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How a kind of task is asked: number, maths, letter, yes-no, letters, short; auto takes that of the "
            "data set. It sets --template, --answer, and the paper's sampling for the "
            "model's family; options that you give come first.",
            callback=_check_preset,
        ),
    ] = None

    def prompting(
        self, model: str | None = None, data: "DataFormat | None" = None
    ) -> Prompting:
        """Return what the preset sets and what was given instead; print what a preset
        has set.

        Args:
            model: the model's name, which tells its family.
            data: the format of the questions; None if it is not known.

        Raises:
            ConfigurationError: ``auto``, and the data set has no preset; or template
                and system message do not go together.
            MissingExtraError: the preset finds its answers by a package that is not
                installed.
        """
        from langchain_reasc.answers import extractor
        from langchain_reasc.data import Template
        from langchain_reasc_lab.data import sampling_of

        template, answer, sampling = self.template, self.answer, dict[str, Any]()
        if self.preset is not None:
            preset, family = self._named_preset(data), sampling_of(model)
            template, answer = template or preset.template, answer or preset.answer
            extractor(answer)
            sampling = dict(family.parameters) if family else {}
            self._print_preset(
                preset, answer, sampling, family.family if family else None
            )
        if self.temperature is not None:
            sampling["temperature"] = self.temperature
        prompt = (template or Template()).after(self.system)
        return Prompting(
            template,
            prompt,
            answer or "auto",
            sampling | {"max_tokens": self.max_tokens},
        )

    def _named_preset(self, data: "DataFormat | None") -> "Preset":
        from langchain_reasc_lab.data import PRESETS, preset_of

        name = (data.preset if data else None) if self.preset == "auto" else self.preset
        if name is None:
            raise ConfigurationError(
                "--preset auto is for data sets that are recognized, or named with "
                f"--format; for other questions name the preset: {', '.join(PRESETS)}"
            )
        return preset_of(name)

    def _print_preset(
        self,
        preset: "Preset",
        answer: str,
        sampling: dict[str, Any],
        family: str | None,
    ) -> None:
        source = f"the paper's for {family}" if family else _UNKNOWN_FAMILY
        if self.temperature is not None:
            sampling = sampling | {"temperature": self.temperature}
            source += ", your temperature" if family else ""
        text = " ".join(str(preset.template.turns[-1].content).split())
        prompt = "your template" if self.template else f'"{text}"'
        values = (
            ", ".join(f"{name} {value:g}" for name, value in sampling.items())
            or "the model's own"
        )
        remark(
            f"--preset {preset.name}: {prompt}, --answer {answer}; sampling: {values} "
            f"({source})"
        )


@dataclass
class ComparisonOptions:
    """What replay and report share: which questions calibrate, what confidence is made
    of, and how much is drawn.
    """

    seed: Seed = 0
    calibration_size: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Questions of POOL itself whose first response calibrates, and which are not tested. "
            r"\[default: 128, or half of fewer than 256, without a calibration pool]",
        ),
    ] = None
    calibration_pool: Annotated[
        Path | None,
        typer.Option(
            metavar="POOL",
            help="A pool of other questions, whose first responses calibrate. "
            r"\[default: calibration-pool.sqlite beside POOL, if there is one and --calibration-size is not given]",
        ),
    ] = None
    signal: Annotated[
        str | None,
        typer.Option(
            help="Token signal behind ReASC; auto chooses signal, score and window on the calibration questions, "
            r"recorded takes the pool's own scores. \[default: auto where the pool has signals, else recorded]"
        ),
    ] = None
    score: Score = "bottom_group"
    window: Window = 128
    p_target: PTarget = 0.9
    max_samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=r"Budget of every method. \[default: 16, or as many as the pool has of each question]",
        ),
    ] = None

    def check(self) -> None:
        """Refuse a wrong measure before anything is read.

        Raises:
            ConfigurationError: signal, score and window do not go together.
        """
        if self.signal is not None:
            pool_measure(self.signal, self.score, self.window)

    def read(self, path: Path) -> "Pool":
        """Read a pool, behind the questions of another one that calibrate, where one is
        named or lies beside it.

        Raises:
            ConfigurationError: both a pool and a number of questions to calibrate on.
            PoolError: one of them cannot be read, or the calibration pool that was
                named does not go with the other.
        """
        from langchain_reasc_lab.pools import CALIBRATION_POOL, calibrated_on, read_pool

        if self.calibration_pool is not None and self.calibration_size is not None:
            raise ConfigurationError(
                "--calibration-pool calibrates on all of its questions, "
                "--calibration-size on some of the tested pool; leave out one of them"
            )
        pool, beside = read_pool(path), path.with_name(CALIBRATION_POOL)
        if self.calibration_pool is not None:
            return calibrated_on(pool, read_pool(self.calibration_pool))
        if (
            self.calibration_size is not None
            or not beside.exists()
            or beside.resolve() == path.resolve()
        ):
            return pool
        try:
            return calibrated_on(pool, read_pool(beside))
        except PoolError as error:
            remark(f"not calibrated on {beside}: {error}")
            return pool

    def measures(
        self, pool: "Pool", *, all_signals: bool = False
    ) -> "list[MeasureSpec]":
        """Return the measures to compare; none if the pool has neither signals nor
        scores and none was given.
        """
        from langchain_reasc.method.confidence import Measure

        names = pool.signals.names if pool.signals else ()
        if all_signals and names:
            return ["auto", *(Measure(name, self.score, self.window) for name in names)]
        if not any((self.signal, names, pool.has_scores, all_signals)):
            return []
        return [
            pool_measure(
                self.signal or ("auto" if names else "recorded"),
                self.score,
                self.window,
            )
        ]

    def settings(
        self, pools: "Sequence[Pool]", *, calibration_responses: int = 4
    ) -> "MethodSettings":
        """Return the settings of all methods.

        Raises:
            ConfigurationError: more samples than any question of the pools has.
        """
        from langchain_reasc_lab.replay.methods import MethodSettings
        from langchain_reasc_lab.replay.replay import budget_of

        return MethodSettings(
            max_samples=budget_of(pools, self.max_samples),
            p_target=self.p_target,
            seed=self.seed,
            calibration_responses=calibration_responses,
        )
