"""``reasc bench``: every rule on every recording of a folder."""

import gzip
import json
from pathlib import Path

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.replay.plots import draw_recordings
from langchain_reasc_lab.replay.recordings import replay_recordings

from lab.data.test_public import PUBLIC
from lab.pools.synthetic import json_lines, question, response, write_pool

pytestmark = pytest.mark.full  # recordings are replayed in processes
RULES = [
    "ESC (w=4)",
    "ASC",
    "Finite horizon (0.97)",
    "Agreement (0.975)",
    "SC@3",
    "Lead of 2",
    "Lead of 3",
    "Finite horizon (0.9)",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recordings")
    for source in ("cruxeval", "epoch"):
        reasc("pool", "import", PUBLIC / source, made, "--source", source)
    return made


def test_every_recording_has_its_rows_in_80_columns(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "bench.png"
    shown = reasc("bench", folder, "--shuffles", 2, "--plot", picture).stdout
    assert max(map(len, shown.splitlines())) <= 80 and picture.stat().st_size > 10_000
    for model in ("codellama-7b", "deepseek-reasoner", "gemini-1.5-flash-002"):
        section = shown.split(f"\n{model}\n")[1].split("\n\n")[0]
        assert [line[1:22].strip() for line in section.splitlines()[-len(RULES) :]] == RULES
        assert "Right: asking once" in section and "\n Votes " in section
    assert "each counts as one token" in shown.split("gemini-1.5-flash-002\n")[1]
    assert "left out" not in shown


def test_numbers_are_those_of_replay(folder: Path) -> None:
    data = json.loads(reasc("bench", folder, "--shuffles", 2, "--json").stdout)
    assert [one["model"] for one in data["recordings"]] == ["codellama-7b", "deepseek-reasoner", "gemini-1.5-flash-002"]
    for one in data["recordings"]:
        options = ("--shuffles", 2, "--rules", "all", "--json")
        replayed = json.loads(reasc("replay", folder / one["file"], *options).stdout)
        rows = {row["method"]: row for row in replayed["rows"]}
        assert [rule["method"] for rule in one["rules"]] == RULES and one["budget"] == replayed["max_samples"]
        for rule in [one["once"], one["always"], *one["rules"]]:
            assert 0 <= rule.pop("worse_by_chance") <= 0.05
            assert rule == {name: rows[rule["method"]][name] for name in rule}
        gain = rows[f"SC@{one['budget']}"]["accuracy"]["value"] - rows["pass@1"]["accuracy"]["value"]
        assert one["always"]["accuracy_vs_once"]["value"] == pytest.approx(gain)


def test_it_says_whether_votes_help(tmp_path: Path) -> None:
    right, wrong = response("7"), response("1")
    json_lines(tmp_path / "help.jsonl", *[question(f"{n}", wrong, right, right, right) for n in range(40)])
    json_lines(tmp_path / "harm.jsonl", *[question(f"{n}", right, wrong, wrong, wrong) for n in range(40)])
    json_lines(tmp_path / "alike.jsonl", *[question(f"{n}", right, right, right, right) for n in range(40)])
    shown = reasc("bench", tmp_path, "--shuffles", 0).stdout
    for name, said in (("help", "help: +100.0"), ("harm", "do harm: -100.0"), ("alike", "do not clearly help: +0.0")):
        assert f"Votes {said}" in shown.split(f"\n{name}\n")[1].split("\n\n")[0]


def test_all_recordings_are_summed_up(folder: Path) -> None:
    data = json.loads(reasc("bench", folder, "--shuffles", 2, "--json").stdout)
    summary = data["summary"]
    assert [rule["method"] for rule in summary["rules"]] == RULES
    assert (summary["recordings"], summary["large"], summary["question_sets"]) == (3, 0, 3)
    for rule in summary["rules"]:
        results = [one for each in data["recordings"] for one in each["rules"] if one["method"] == rule["method"]]
        for name in ("tokens_vs_once", "tokens_vs_sc"):
            least, middle, most = sorted(one[name]["value"] for one in results)
            ends = (middle - 0.8 * (middle - least), middle + 0.8 * (most - middle))
            assert rule[name] == pytest.approx(dict(zip(("median", "low", "high"), (middle, *ends), strict=True)))
        assert rule["tokens_vs_once_large"] is None
        points = [100 * one["accuracy_vs_sc"]["value"] for one in results]
        assert rule["points_vs_sc"]["value"] == pytest.approx(sum(points) / 3)
        assert rule["a_point_lost"] == sum(each < -1 for each in points)
        assert rule["worse_by_chance"] == pytest.approx(sum(one["worse_by_chance"] for one in results))


def test_the_summary_shows_its_numbers(folder: Path) -> None:
    [ours] = [
        rule
        for rule in json.loads(reasc("bench", folder, "--shuffles", 2, "--json").stdout)["summary"]["rules"]
        if rule["method"] == "Agreement (0.975)"
    ]
    summary = reasc("bench", folder, "--shuffles", 2).stdout.split("\nAll 3 recordings, ")[1]
    costs, answers = [line for line in summary.splitlines() if line.startswith(" Agreement")]
    once, always, points = ours["tokens_vs_once"], ours["tokens_vs_sc"], ours["points_vs_sc"]
    to_once = f"{once['median']:.1f} ({once['low']:.1f}-{once['high']:.1f})"
    to_always = f"{always['median']:.2f} ({always['low']:.2f}-{always['high']:.2f})"
    assert " ".join(costs.split()[2:]) == f"{to_once} - {to_always}"
    assert f"{points['value']:+.2f} [{points['low']:+.2f},{points['high']:+.2f}]" in answers
    assert f"{once['median']:.1f} times as much as one" in " ".join(summary.split())


def test_large_recordings_have_numbers_of_their_own(tmp_path: Path) -> None:
    right, wrong = response("7"), response("1")
    for name, questions, responses in (("large", 150, [right] * 8), ("small", 40, [right, wrong] * 4)):
        json_lines(tmp_path / f"{name}.jsonl", *[question(f"{name} {n}", *responses) for n in range(questions)])
    data = json.loads(reasc("bench", tmp_path, "--shuffles", 2, "--json").stdout)
    large, small = data["recordings"]
    for rule, on_large, on_small in zip(data["summary"]["rules"], large["rules"], small["rules"], strict=True):
        on_large, on_small = on_large["tokens_vs_once"]["value"], on_small["tokens_vs_once"]["value"]
        assert rule["tokens_vs_once"]["median"] == pytest.approx((on_large + on_small) / 2)
        assert rule["tokens_vs_once_large"]["median"] == pytest.approx(on_large)


def test_recordings_of_the_same_questions_count_as_one_set(tmp_path: Path) -> None:
    right, wrong = response("7"), response("1")
    steady, close = [right] * 16, [*[right] * 9, *[wrong] * 7]
    for name, responses in (("a", steady), ("b", close), ("c", close)):
        ids = "other" if name == "a" else "same"
        json_lines(tmp_path / f"{name}.jsonl", *[question(f"{ids} {n}", *responses) for n in range(40)])
    data = json.loads(reasc("bench", tmp_path, "--shuffles", 2, "--json").stdout)
    assert [one["question_set"] for one in data["recordings"]] == [1, 2, 2]
    points = [
        100 * next(rule for rule in one["rules"] if rule["method"] == "SC@3")["accuracy_vs_sc"]["value"]
        for one in data["recordings"]
    ]
    [summed] = [rule["points_vs_sc"] for rule in data["summary"]["rules"] if rule["method"] == "SC@3"]
    of_same = (points[1] + points[2]) / 2
    assert points[0] == 0 > of_same and summed["value"] == pytest.approx(of_same / 2)
    half = 12.7062 * abs(of_same) / 2  # Student's t at one degree of freedom
    assert summed["high"] - summed["value"] == pytest.approx(half, rel=1e-4)


def test_a_recording_on_which_the_rule_is_clearly_worse_is_named(tmp_path: Path) -> None:
    right, wrong = response("7"), response("1")
    close, steady = [*[right] * 9, *[wrong] * 7], [right] * 16
    json_lines(tmp_path / "mixed.jsonl", *[question(f"{n}", *(steady if n % 3 else close)) for n in range(400)])
    json_lines(tmp_path / "steady.jsonl", *[question(f"{n}", *steady) for n in range(20)])
    said = " ".join(reasc("bench", tmp_path, "--shuffles", 4).stdout.split())
    assert "help on 1 of 2 recordings" in said and "harm on 0." in said
    assert "clearly worse on 1 of 2 recordings (none by more than a point: mixed.jsonl)" in said


def test_a_picture_of_many_recordings_is_not_taller_than_a_page(folder: Path) -> None:
    results, _ = replay_recordings([next(folder.glob("epoch_otis*"))], shuffles=2)
    few, many = draw_recordings(results * 3), draw_recordings(results * 200)
    assert few.axes[0].get_yticklabels()[0].get_text().startswith("gemini-1.5-flash-002")
    assert [axes.get_ylabel()[:15] for axes in many.axes] == ["200 recordings,"] * 2 and many.get_figheight() < 10


def test_confidence_has_rows_where_there_are_scores(tmp_path: Path) -> None:
    write_pool(tmp_path / "scored.sqlite", questions=30, samples=6, signals=False, scores=True)
    [one] = json.loads(reasc("bench", tmp_path, "--shuffles", 2, "--json").stdout)["recordings"]
    assert (one["questions"], one["budget"]) == (15, 6)  # half of them calibrate
    assert {"ReASC (offline)", "ReASC (online)"} <= {rule["method"] for rule in one["rules"]}


def test_what_cannot_be_compared_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    lines = [question(f"{n}", *[response("7")] * 4) for n in range(12)]
    packed = gzip.compress("\n".join(map(json.dumps, lines)).encode())
    (tmp_path / "good.jsonl.gz").write_bytes(packed)
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[:-20])
    (tmp_path / "broken.jsonl").write_text('{"id"\n')
    (tmp_path / "other.sqlite").write_bytes(b"no database")
    json_lines(tmp_path / "single.jsonl", *[question(f"{n}", response("7")) for n in range(12)])
    cascade = {"id": "a", "reference": None, "models": {"small": {"answer": "7", "completion_tokens": 1}}}
    (tmp_path / "cascade.jsonl").write_text(json.dumps(cascade))
    (tmp_path / "notes.txt").write_text("not a recording")
    shown = " ".join(reasc("bench", tmp_path, "--shuffles", 1).stdout.split())
    for file, reason in {
        "cut.jsonl.gz": "cannot read the pool",
        "broken.jsonl": "line 1 is not valid JSON",
        "other.sqlite": "is not a pool",
        "single.jsonl": "one response to each question",
        "cascade.jsonl": "responses is missing",
    }.items():
        assert reason in shown.split(f"Left out: {file}: ")[1].split("Left out:")[0]
    assert "good 12 questions, 4 responses to each" in shown and shown.count("Left out: ") == 5
    assert str(tmp_path) not in shown and "notes.txt" not in shown


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    assert "is not a folder" in reasc("bench", tmp_path / "none", code=1).stderr
    assert "holds no recording" in reasc("bench", tmp_path, code=1).stderr
    (tmp_path / "broken.jsonl").write_text('{"id"\n')
    ended = reasc("bench", tmp_path, code=1)
    assert "Left out: broken.jsonl" in ended.stdout and "none of the files" in ended.stderr
