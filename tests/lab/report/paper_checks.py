"""What the paper's printed figures must satisfy, each worked out from the others with this library's functions.

A printed figure stands for all that rounds to it. A check holds where some values that round to the printed figures
satisfy it.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from langchain_reasc_backend.logits import signals_from_logits
from langchain_reasc_lab.report.results import accuracy_per_tflop, change
from langchain_reasc_lab.report.signals import edges
from scipy.stats import binom

from langchain_reasc.method.stopping import ASC, Response, decide

NUMBERS: dict[str, Any] = json.loads(Path(__file__).with_name("paper_numbers.json").read_text(encoding="utf-8"))
ROWS = {name: held["rows"] for name, held in NUMBERS.items() if isinstance(held, dict)}
MAIN, CI = ROWS["tab:overall_full_results"], ROWS["tab:accuracy_ci"]
QUESTIONS = {"GSM8K": 1319, "MATH500": 500, "Omni-Math": 999, "GPQA-Diamond": 197}
PARAMETERS_OF_MIXTURE = [3 * components - 1 for components in (1, 2, 3, 4)]
QWEN_VOCABULARY = 152_064


@dataclass(frozen=True)
class Check:
    """One figure.

    Attributes:
        where: the table, and where in it.
        printed: what is printed.
        found: what the others say it comes to.
        holds: whether the two agree to the printed digits.
    """

    where: str
    printed: str
    found: str
    holds: bool


Range = tuple[float, float]


def rounded(text: str) -> Range:
    """All that rounds to a printed figure."""
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return float(text) - half, float(text) + half


def reach(function: Callable[..., float], *printed: str) -> Range:
    """What a function that is monotone in each argument comes to, over all that rounds to the printed figures."""
    values = [function(*corner) for corner in product(*map(rounded, printed))]
    return min(values), max(values)


def meets(one: Range, other: Range) -> bool:
    return one[0] <= other[1] + 1e-9 and other[0] <= one[1] + 1e-9


def check(where: str, printed: str, function: Callable[..., float], *of: str) -> Check:
    """That a printed figure is a function of others."""
    digits = len(printed.partition(".")[2])
    found = f"{function(*map(float, of)):.{digits}f}"
    return Check(where, printed, found, meets(rounded(printed), reach(function, *of)))


def counts(share: str, of: int, *, slack: float = 0.0) -> list[int]:
    """The numbers k for which k of so many is the printed per cent."""
    low, high = (of * bound / 100 for bound in rounded(share))
    return list(range(math.ceil(low - slack - 1e-9), math.floor(high + slack + 1e-9) + 1))


def combined(share: float, first: float, rest: float) -> float:
    """The mean over all, where a share of them has the mean ``first`` and the others have the mean ``rest``."""
    return share * first + (1 - share) * rest


def quotients() -> Iterator[Check]:
    """Acc/TF, and what is less than self-consistency's."""
    for model, methods in MAIN.items():
        for method, cells in methods.items():
            for data, (accuracy, tflops, reduction, quotient) in cells.items():
                where = f"tab:overall_full_results, {model}, {method}, {data}"
                if quotient:
                    yield check(f"{where}: Acc/TF", quotient, accuracy_per_tflop, accuracy, tflops)
                if reduction:
                    yield check(f"{where}: reduction", reduction, change, tflops, methods["SC (k=16)"][data][1])
    for regime, targets in ROWS["tab:ptarget_sensitivity"].items():
        for target, models in targets.items():
            for model, (accuracy, tflops, quotient) in models.items():
                where = f"tab:ptarget_sensitivity, {regime}, {target}, {model}: Acc/TF"
                yield check(where, quotient, accuracy_per_tflop, accuracy, tflops)
    for method, cells in ROWS["tab:general_domain_results"].items():
        for data, (accuracy, tflops, quotient) in cells.items():
            where = f"tab:general_domain_results, {method}, {data}: Acc/TF"
            yield check(where, quotient, accuracy_per_tflop, accuracy, tflops)


def best() -> Iterator[Check]:
    """That ReASC costs least, and has the best Acc/TF, in every cell."""
    for model, methods in MAIN.items():
        for data in QUESTIONS:
            held = {method: cells[data] for method, cells in methods.items() if data in cells and cells[data][1]}
            cheapest = min(held, key=lambda method: float(held[method][1]))
            most = max(held, key=lambda method: float(held[method][3]))
            where = f"tab:overall_full_results, {model}, {data}"
            yield Check(f"{where}: costs least", "ReASC", cheapest, cheapest.startswith("ReASC"))
            yield Check(f"{where}: best Acc/TF", "ReASC", most, most.startswith("ReASC"))


def shares() -> Iterator[Check]:
    """That accuracies and the bounds of their intervals are whole numbers of questions."""
    for model, methods in MAIN.items():
        for method, cells in methods.items():
            for data, (accuracy, *_) in cells.items():
                n = QUESTIONS[data]
                where = f"tab:overall_full_results, {model}, {method}, {data}: of {n} questions"
                yield Check(where, accuracy, f"{len(counts(accuracy, n))} possible", bool(counts(accuracy, n)))
    for data, n in [*QUESTIONS.items(), ("Omni-Math", 1000), ("Omni-Math", 4428)]:
        bounds = [bound for methods in CI.values() for cells in methods.values() for bound in cells.get(data, ())]
        # A percentile of 2,000 resamples lies between two of them, nearly at one: within 0.025 of a question.
        wrong = sorted({bound for bound in bounds if not counts(bound, n, slack=0.026)})
        found = "all are" if not wrong else f"not so: {len(wrong)}, such as {wrong[0]}"
        yield Check(
            f"tab:accuracy_ci, {data}: bounds are multiples of 1/{n}", f"{len(bounds)} bounds", found, not wrong
        )


def intervals() -> Iterator[Check]:
    """The bootstrap of right and wrong answers is a binomial distribution; of 2,000 resamples, up to some noise."""
    for model, methods in CI.items():
        for method, cells in methods.items():
            for data, printed in cells.items():
                n, accuracy = QUESTIONS[data], float(MAIN[model][method][data][0]) / 100
                ends = [100 * float(binom.ppf(level, n, accuracy)) / n for level in (0.025, 0.975)]
                # The standard error of these percentiles is 0.06 standard deviations; and a count is a whole number.
                noise = 100 / n + 3 * 0.06 * 100 * math.sqrt(accuracy * (1 - accuracy) / n)
                near = all(abs(float(one) - end) <= noise for one, end in zip(printed, ends, strict=True))
                where = f"tab:accuracy_ci, {model}, {method}, {data}: interval of {100 * accuracy:.2f} %"
                yield Check(where, f"[{', '.join(printed)}]", f"[{ends[0]:.2f}, {ends[1]:.2f}]", near)


def stage_1() -> Iterator[Check]:
    """That what is accepted, and what of it is right, are whole numbers of questions; and what the text says of it."""
    for regime, models in ROWS["tab:stage1_acceptance"].items():
        for model, cells in models.items():
            for data, (share, accuracy) in cells.items():
                where, n = f"tab:stage1_acceptance, {regime}, {model}, {data}", QUESTIONS[data]
                accepted = counts(share, n)
                nearest = round(float(share) / 100 * n)
                found = f"{nearest} of {n} are {100 * nearest / n:.2f} %"
                yield Check(f"{where}: accepted", share, found, bool(accepted))
                right = round(float(accuracy) / 100 * nearest)
                found = f"{right} of {nearest} are {100 * right / nearest:.2f} %"
                holds = any(counts(accuracy, of) for of in accepted or [nearest])
                yield Check(f"{where}: accuracy of the accepted", accuracy, found, holds)
        for data in ("GSM8K", "MATH500"):
            ratios = [float(models[model][data][0]) for model in models]  # by size
            rises = all(low < high for low, high in pairwise(ratios))
            found = ", ".join(f"{ratio:g}" for ratio in ratios)
            yield Check(
                f"tab:stage1_acceptance, {regime}, {data}: by model size", "consistently increases", found, rises
            )


def stage_2() -> Iterator[Check]:
    """That all questions are the accepted ones and the rest."""
    accepting, rest = ROWS["tab:stage1_acceptance"], ROWS["tab:after_stage1"]
    for model, cells in rest["ReASC"].items():
        for data, (accuracy, tflops) in cells.items():
            where, one_response = f"tab:after_stage1, {model}, {data}", float(MAIN[model]["SC (k=16)"][data][1]) / 16
            told: dict[str, list[tuple[str, float, bool]]] = {"accuracy": [], "TFLOPs": []}
            for regime, models in accepting.items():
                share, right = models[model][data]
                overall = MAIN[model][f"ReASC ({regime})"][data]
                of = (share, right, accuracy)
                ranged = reach(lambda s, a, b: combined(s / 100, a, b), *of)
                value = combined(float(share) / 100, float(right), float(accuracy))
                told["accuracy"].append((overall[0], value, meets(rounded(overall[0]), ranged)))
                # What is accepted costs one response, and such a response is hardly longer than the others.
                value = combined(float(share) / 100, one_response, float(tflops))
                told["TFLOPs"].append((overall[1], value, rounded(overall[1])[0] <= value))
            for what, readings in told.items():
                printed = " offline, ".join(one for one, *_ in readings) + " online"
                found = " offline, ".join(f"{value:.2f}" for _, value, _ in readings) + " online"
                yield Check(f"{where}: ReASC, all questions, {what}", printed, found, any(ok for *_, ok in readings))
    for model, cells in rest["ASC"].items():
        for data, (accuracy, tflops) in cells.items():
            where, overall = f"tab:after_stage1, {model}, {data}: ASC on the rest", MAIN[model]["ASC"][data]
            lower = float(accuracy) <= float(overall[0])
            yield Check(f"{where}, accuracy", accuracy, f"{overall[0]} on all", lower)
            yield Check(f"{where}, TFLOPs", tflops, f"{overall[1]} on all", float(tflops) >= float(overall[1]))


def repeated() -> Iterator[Check]:
    """That what is printed twice is the same."""
    for method, main in (("ASC", "ASC"), ("ReASC", "ReASC (offline)")):
        for model, cells in ROWS["tab:ablation_stage1"][method].items():
            for data, printed in cells.items():
                yield _same(f"tab:ablation_stage1, {model}, {method}, {data}", printed, MAIN[model][main][data][:2])
    for regime, targets in ROWS["tab:ptarget_sensitivity"].items():
        for model, printed in targets["0.9"].items():
            other = MAIN[model][f"ReASC ({regime})"]["MATH500"][:2]
            yield _same(f"tab:ptarget_sensitivity, {regime}, 0.9, {model}: as in the main table", printed[:2], other)
    for method, main in (("ASC", "ASC"), ("ESC", "ESC (w=4)"), ("ReASC", "ReASC (online)")):
        printed, other = ROWS["tab:batched_latency_results"][method][1:3], MAIN["Qwen-2.5-3B"][main]["GSM8K"][:2]
        yield _same(f"tab:batched_latency_results, {method}", printed, other)
    only = ROWS["tab:ablation_stage1"]["Stage 2 only"]
    for model, mappings in ROWS["tab:confidence_mapping_design_representative"].items():
        for at, data in enumerate(("GSM8K", "MATH500")):
            where = f"tab:confidence_mapping_design_representative, {model}, {data}"
            yield _same(f"{where}: ASC", [mappings["ASC"][at]], [MAIN[model]["ASC"][data][3]])
            if model in only:
                yield check(
                    f"{where}: ours, Stage 2 only", mappings["ours"][at], accuracy_per_tflop, *only[model][data]
                )
    windows, bottom = ROWS["tab:group_size_auroc"]["128"], ROWS["tab:confidence_auroc"]["bottom 10 % group"][0]
    found = f"{windows[0]} Gemma-3-4B, {windows[1]} Qwen-2.5-3B"
    yield Check("tab:confidence_auroc, bottom 10 % group: as with window 128", bottom, found, bottom in windows)


def _same(where: str, printed: list[str], other: list[str]) -> Check:
    equal = [float(one) for one in printed] == [float(one) for one in other]
    return Check(where, " at ".join(printed), " at ".join(other), equal)


def mixtures() -> Iterator[Check]:
    """BIC - AIC = k (ln n - 2) for k parameters, whatever the fit."""
    for model, sets in ROWS["table:aic-bic"].items():
        for data, held in sets.items():
            for components, parameters in enumerate(PARAMETERS_OF_MIXTURE, start=1):
                aic, bic = held["AIC"][components - 1], held["BIC"][components - 1]
                more = parameters * (math.log(QUESTIONS[data]) - 2)
                where = f"table:aic-bic, {model}, {data}: BIC of {components} from the AIC"
                yield check(where, bic, lambda value, more=more: value + more, aic)
            for criterion, values in held.items():
                lowest = 1 + int(np.argmin([float(one) for one in values]))
                yield Check(f"table:aic-bic, {model}, {data}: lowest {criterion}", "2", str(lowest), lowest == 2)
            again = [
                float(aic) + parameters * (math.log(QUESTIONS[data]) - 2)
                for aic, parameters in zip(held["AIC"], PARAMETERS_OF_MIXTURE, strict=True)
            ]
            lowest = 1 + int(np.argmin(again))
            where = f"table:aic-bic, {model}, {data}: lowest BIC, as the AIC has it"
            yield Check(where, "2", str(lowest), lowest == 2)


def bins() -> Iterator[Check]:
    """What the bins of confidence are."""
    table = ROWS["tab:confidence_bin_accuracy"]
    bounds = [float(table[0][0]), *(float(row[1]) for row in table)]
    equal = np.allclose(bounds, edges(np.array([bounds[0], bounds[-1]]), "equal width"), atol=0.011)
    yield Check("tab:confidence_bin_accuracy: kind", "quantile", "equal width" if equal else "unequal", not equal)
    mean = float(np.mean([float(row[2]) for row in table]))
    first = [MAIN["Qwen-2.5-7B"]["pass@1"][data][0] for data in QUESTIONS]
    near = any(abs(mean - float(one)) < 2 for one in first)
    where = "tab:confidence_bin_accuracy: accuracy of all, in quantile bins"
    yield Check(where, f"{mean:.2f} in the mean", f"pass@1 is {', '.join(first)}", near)
    uniform = signals_from_logits(np.zeros((1, QWEN_VOCABULARY), dtype=np.float32), np.zeros(1, dtype=np.int64))
    least = float(uniform["self_certainty"][0])
    where = "tab:confidence_bin_accuracy: lowest confidence, by Eq. 1"
    yield Check(where, table[0][0], f"{least:.2f} at least", float(table[0][0]) >= least)


def text() -> Iterator[Check]:
    """What the text says of the tables."""
    gemma = MAIN["Gemma-3-4B"]
    found = {regime: float(gemma[f"ReASC ({regime})"]["GSM8K"][2]) for regime in ("offline", "online")}
    told = ", ".join(f"{-value:g} {regime}" for regime, value in found.items())
    yield Check(
        "Abstract: up to so many per cent less on GSM8K with Gemma-3-4B",
        "70",
        told,
        max(-v for v in found.values()) <= 70,
    )
    votes = [Response("right")] * 6
    for at in range(4):  # where the one that disagrees may come for ASC to go on to seven
        seen = [*votes[:at], Response("wrong"), *votes[at:]]
        taken = decide(ASC(), seen).samples
        yield Check(f"Figure 5: ASC's samples, the {at + 1}. disagrees", "7", str(taken), taken == 7)
    yield check("Figure 5: reduction", "43", lambda ours, asc: -change(ours, asc), "4.00", "7.00")
    listed = len(ROWS["table:dataset_description"])
    yield Check("table:dataset_description: data sets in the caption", "five", str(listed), listed == 5)


def every_check() -> list[Check]:
    families = (quotients, best, shares, intervals, stage_1, stage_2, repeated, mixtures, bins, text)
    return [one for family in families for one in family()]
