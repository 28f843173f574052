"""`reasc pool import --source`, on excerpts of what was published (see public/README.md)."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.test_commands import reasc
from langchain_reasc_lab.pools import Pool, read_pool

PUBLIC = Path(__file__).parent / "public"


def imported(source: str, folder: Path, checkout: Path | None = None) -> dict[str, Pool]:
    reasc("pool", "import", checkout or PUBLIC / source, folder, "--source", source)
    return {path.name: read_pool(path) for path in sorted(folder.iterdir())}


def test_equal_values_of_python_are_one_answer(tmp_path: Path) -> None:
    [pool] = imported("cruxeval", tmp_path).values()
    assert (pool.model, len(pool.questions)) == ("codellama-7b", 40)
    first = pool.questions[0]
    assert (first.id, first.reference) == ("sample_130", "'h=l'")
    assert Counter(one.answer for one in first.responses) == {"'o=9,h=6,l=4'": 9, "'h=6,o=9,l=4'": 1}
    assert not any(one.correct for one in first.responses)
    assert all(one.correct for one in pool.questions[1].responses)


def test_the_first_choice_of_a_ranking_is_its_vote(tmp_path: Path) -> None:
    [pool] = imported("ranked_votes", tmp_path).values()
    assert (pool.model, len(pool.questions)) == (None, 60)
    answers = [[one.answer for one in question.responses] for question in pool.questions]
    assert answers[1] == ["D", "D", "D", None, "D", "D", "D", None] and pool.questions[1].reference == "A"


def test_a_run_names_its_model_and_keeps_verdicts_and_tokens(tmp_path: Path) -> None:
    pools = imported("epoch", tmp_path)
    gpqa, otis = (
        pools["epoch_gpqa_deepseek-reasoner_CDdjbq.sqlite"],
        pools["epoch_otis_gemini-1.5-flash-002_QdGZ2m.sqlite"],
    )
    assert (gpqa.model, otis.model) == ("deepseek-reasoner", "gemini-1.5-flash-002")
    assert [len(one.responses) for one in (gpqa.questions[0], otis.questions[0])] == [8, 16]
    assert gpqa.questions[0].responses[0].completion_tokens == 1310
    assert {one.answer for one in otis.questions[0].responses if one.correct} == {"199"}
    assert gpqa.metadata["license"].startswith("CC BY")


@pytest.mark.full
def test_a_run_of_verdicts_alone_is_left_out_and_answers_are_found_in_texts(tmp_path: Path) -> None:
    copied = shutil.copytree(PUBLIC / "epoch", tmp_path / "in")
    for summaries in copied.rglob("summaries.json"):
        samples = json.loads(summaries.read_text())
        for sample in samples:
            scores = sample["scores"]
            if "choice" in scores:
                del scores["choice"]["answer"]
            else:
                scores["model_graded"]["answer"] = "There are 7.\nThe final answer is $\\boxed{042}$."
        summaries.write_text(json.dumps(samples))
    said = reasc("pool", "import", copied, tmp_path / "out", "--source", "epoch").stderr
    assert (
        "left out 1 without recorded answers: gpqa_deepseek-reasoner_CDdjbq\n" in said
        and "wrote 1 recording into" in said
    )
    [pool] = [read_pool(path) for path in (tmp_path / "out").iterdir()]
    assert {one.answer for one in pool.responses} == {"42"}


CONSOL = {
    "resources/experiment_input/data/gsm.jsonl": '{"input": "3+4", "target": 7}\n{"input": "20/3", "target": 6.666667}',
    "resources/experiment_input/data/medqa.jsonl": '{"question": "?", "answer_idx": "C"}',
    "resources/experiment_output/gsm/gpt4omini-gsm-vote/0.csv": ",answer,token_usage\n0,7.0,107\n1,8.0,90\n2,,5",
    "resources/experiment_output/gsm/gpt4omini-gsm-vote/1.csv": ",answer,token_usage\n0,6.666666666666667,30",
    "resources/experiment_output/gsm/gpt4omini-gsm-sprt-1/0.csv": ",answer,token_usage\n0,7.0,107",
    "resources/experiment_output/medqa/gpt4omini-medqa-vote/0.csv": ",answer,token_usage\n0,3.0,9",
}
DATES = {"question": "Which day?", "answer": {"01/01/2020": 0, "05/01/2021": 1}}
MOT = {
    **{
        f"GPT3_result/date_{name}.json": json.dumps(
            [DATES | {"results": ["5/1/2021\n", None] * n, "generated": ["A: 5/1/2021", "no"] * n}]
        )
        for name, n in (("cot1", 4), ("cot1_40", 5), ("cot2_t=0.4", 4))
    },
    **{
        f"GPT4_result/gsm_{name}.json": json.dumps([{"question": "?", "answer": 7, "results": [n], "generated": ["x"]}])
        for name, n in (("cot1", 7.0), ("pot1", "inf"), ("pot2", 8), ("greedy_cot1", 9))
    },
}


def checkout(folder: Path, files: dict[str, str]) -> Path:
    """A checkout in the layout of a repository whose recordings nobody else may publish, with made-up responses."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def votes(pool: Pool) -> list[list[tuple[str | None, bool | None]]]:
    return [[(one.answer, one.correct) for one in question.responses] for question in pool.questions]


def test_a_table_of_votes_for_each_question(tmp_path: Path) -> None:
    pools = imported("consol", tmp_path / "out", checkout(tmp_path / "in", CONSOL))
    assert set(pools) == {"consol_gsm_gpt4omini.sqlite", "consol_medqa_gpt4omini.sqlite"}
    gsm, medqa = pools.values()
    assert votes(gsm) == [[("7", True), ("8", False), (None, False)], [("6.666667", True)]]
    assert votes(medqa) == [[("3", True)]] and gsm.questions[0].responses[0].completion_tokens == 107


def test_files_of_few_responses_each_are_one_recording(tmp_path: Path) -> None:
    pools = imported("mot", tmp_path / "out", checkout(tmp_path / "in", MOT))
    assert set(pools) == {
        "mot_date_cot1_40_gpt-3.5-turbo.sqlite",  # which holds the responses of date_cot1.json, too
        "mot_date_cot2_t=0.4_gpt-3.5-turbo.sqlite",
        "mot_gsm_all_gpt-4.sqlite",
    }
    date, _, gsm = pools.values()
    assert votes(date) == [[("05/01/2021", True), (None, False)] * 5]
    assert [answer for answer, _ in votes(gsm)[0]] == ["7", "inf", "8"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: shutil.rmtree(folder / "samples"), "holds no recording of facebookresearch/cruxeval"),
        (lambda folder: (folder / "data/cruxeval.jsonl").write_text("version https://git-lfs"), "is not as"),
        (lambda folder: (folder / "data/cruxeval.jsonl").write_text('{"id": "a"}'), "is not as"),
    ],
)
def test_another_checkout_is_refused_and_leaves_nothing(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    folder, out = shutil.copytree(PUBLIC / "cruxeval", tmp_path / "in"), tmp_path / "out"
    change(folder)
    said = reasc("pool", "import", folder, out, "--source", "cruxeval", code=1).stderr
    assert says in said and "facebookresearch/cruxeval" in said and not list(tmp_path.glob("out/*"))


def test_what_is_there_is_not_overwritten_and_sources_have_names(tmp_path: Path) -> None:
    imported("cruxeval", tmp_path)
    again = reasc("pool", "import", PUBLIC / "cruxeval", tmp_path, "--source", "cruxeval", code=1).stderr
    assert "cruxeval_output_codellama-7b.sqlite already" in again
    assert "choose consol, mot" in reasc("pool", "import", PUBLIC, tmp_path, "--source", "x", code=1).stderr
