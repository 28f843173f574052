"""Files as they come: what can be read in every kind, and what is said, with its place, of what cannot."""

import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from lab.pools.synthetic import write_lines

from langchain_reasc.data import LabelledQuestion, read_questions, read_unlabelled
from langchain_reasc.data.sources import rows_of
from langchain_reasc.exceptions import ConfigurationError

ROWS = [
    {"id": "a", "question": "What is 3 + 4,\nin words or numbers?", "answer": "7"},
    {"id": "b", "question": 'Which word is "größer"?', "answer": "größer"},
]
READ = [
    LabelledQuestion("a", str(ROWS[0]["question"]), "7"),
    LabelledQuestion("b", str(ROWS[1]["question"]), "größer"),
]
GOOD = '{"question": "1 + 1?", "answer": "2"}\n'
TABLE = "question,answer\n1 + 1?,2\n"


def written(path: Path) -> Path:
    """The two rows in a file of the kind that its name says."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        parquet.write_table(arrow.Table.from_pylist(ROWS), path)
        return path
    text = io.StringIO()
    if kind in ("csv", "tsv"):
        table = csv.DictWriter(text, ["id", "question", "answer"], delimiter="," if kind == "csv" else "\t")
        table.writeheader()
        table.writerows(ROWS)
    elif kind == "json":
        json.dump(ROWS, text, indent=1)
    else:
        text.writelines(json.dumps(row) + "\n" for row in ROWS)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    "name", ["q.ndjson", "questions", "q.json", "Q.CSV", "q.tsv", "q.parquet", "q.jsonl.gz", "q.csv.gz"]
)
def test_the_same_questions_from_every_kind_of_file(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name.lower()).rename(tmp_path / name)
    assert read_questions(path) == READ
    assert read_questions(path, limit=1) == READ[:1]
    if path.suffix:  # else it is a text with a question a line
        assert read_unlabelled(path) == [(one.input, None) for one in READ]
        assert read_unlabelled(path, answer_field="answer") == [(one.input, one.references) for one in READ]


@pytest.mark.parametrize("text", ['{"data": %s, "version": 1}', "\ufeff %s\n"])
def test_a_list_inside_of_an_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.json"
    path.write_text(text % json.dumps(ROWS), encoding="utf-8")
    assert read_questions(path) == READ


def test_json_lines_that_are_called_json(tmp_path: Path) -> None:
    assert read_questions(write_lines(tmp_path / "q.json", *ROWS)) == READ
    assert read_questions(write_lines(tmp_path / "q.json", ROWS[0])) == READ[:1]
    with pytest.raises(ConfigurationError, match=r"q\.json, line 3"):
        read_questions(write_lines(tmp_path / "q.json", *ROWS, "{"))


def test_a_mark_of_byte_order_and_windows_ends_of_lines(tmp_path: Path) -> None:
    for name, text in (("q.jsonl", GOOD), ("q.csv", TABLE), ("q.tsv", TABLE.replace(",", "\t"))):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
        assert [(one.input, one.reference) for one in read_questions(tmp_path / name)] == [("1 + 1?", "2")]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("name", ["q.jsonl", "q.csv", "q.tsv", "q.txt", "q.json", "q.jsonl.gz"])
def test_lines_may_end_as_on_any_system(tmp_path: Path, name: str, end: str) -> None:
    lines = {"q.csv": ["question,answer", "1?,2", "3?,4"], "q.txt": ["1?", "3?"]}
    lines["q.tsv"] = [line.replace(",", "\t") for line in lines["q.csv"]]
    text = end.join(lines.get(name, ['{"question": "1?", "answer": 2}', '{"question": "3?", "answer": 4}']))
    for data in (text.encode(), (text + end).encode()):
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        assert [question for question, _ in read_unlabelled(tmp_path / name)] == ["1?", "3?"]


def test_a_line_within_a_cell_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_bytes(b'question,answer\r\n"one\r\ntwo\rthree\n",2\r\n')
    assert read_unlabelled(tmp_path / "q.csv") == [("one\r\ntwo\rthree\n", None)]
    (tmp_path / "q.csv").write_bytes(b'question,answer\r"one\rtwo",2\ra?,b,c,d\r')
    with pytest.raises(ConfigurationError, match=r"q\.csv, line 4 .*4 columns"):
        read_questions(tmp_path / "q.csv")


def test_a_cell_may_be_longer_than_the_limit_of_pythons_csv(tmp_path: Path) -> None:
    """Whatever limit another part of the program has set."""
    texts = ["x" * 200_000, "line\n" * 50_000]
    with (tmp_path / "q.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *((text, "1") for text in texts)])
    before = csv.field_size_limit(1000)
    try:
        assert [one.input for one in read_questions(tmp_path / "q.csv")] == texts
        assert csv.field_size_limit() > 1000, "it is not lowered, which could end the reading of another thread"
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(("faulty", "torn"), [('{"question": "2?", "ans', True), ('{"question": "2?", oops}', False)])
def test_only_a_line_that_ends_within_its_object_is_called_cut_off(tmp_path: Path, faulty: str, torn: bool) -> None:
    (tmp_path / "q.jsonl").write_text(GOOD + faulty)
    with pytest.raises(ConfigurationError, match=r"q\.jsonl, line 2 is not valid JSON") as raised:
        read_questions(tmp_path / "q.jsonl")
    assert ("cut off" in str(raised.value)) is torn


@pytest.mark.parametrize(("name", "delimiter"), [("q.csv", ","), ("q.tsv", ";"), ("q.csv", "\t")])
def test_a_table_is_read_with_the_delimiter_of_its_header(tmp_path: Path, name: str, delimiter: str) -> None:
    path = tmp_path / name
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=delimiter)
        table.writerows([("question", "a note, of mine; or none", "answer"), ("1 + 1, or 2?; say", "", "2")])
    assert [(one.input, one.reference) for one in read_questions(path)] == [("1 + 1, or 2?; say", "2")]
    path.write_text(delimiter.join(("question", "answer")) + f"\nWhat{delimiter} then{delimiter} is it?{delimiter}2\n")
    named = {",": "a comma", ";": "a semicolon", "\t": "a tab"}[delimiter]
    with pytest.raises(ConfigurationError, match=f"line 2 .*4 columns, .*{named}"):
        read_questions(path)


def test_empty_lines_and_spaces_in_a_header_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question, answer\n\n1 + 1?,2\n\n1 + 2?,3,,\n")
    assert [one.reference for one in read_questions(tmp_path / "q.csv")] == ["2", "3"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("q.json", " \n", "q.json holds no question"),
        ("q.json", "[]", "q.json holds no question"),
        ("q.csv", "", "q.csv holds no question"),
        ("q.csv", TABLE + "grün?,1\n", r"q.csv, line 3 .*Latin-1"),
        ("q.jsonl", GOOD + '{"question": "2?", "ans', "line 2 .*cut off"),
        ("q.json", '[{"question": "2?", "ans', r"q.json, line 1, column 21"),
        ("q.csv", TABLE + '"a question that goes\non,2\n', "q.csv, line 3 .*never closed"),
        ("q.csv", TABLE + "What is 1 + 3", r"line 3 .*1 column.*2 \(question, answer\)"),
        ("q.csv", "question,note,question\n1,2,3\n", "line 1: .*question twice"),
        ("q.csv", "text,answer\n1?,2\n", "q.csv, line 2 .*text, answer.*question_field="),
        ("q.csv", "question,note\n1?,2\n", "q.csv, line 2 .*question, note.*answer_field="),
        ("q.jsonl", GOOD + '{"question": "2?", "answer": [null, " "]}', "q.jsonl, line 2 "),
        ("q.jsonl", '{"question": "2?", "answer": "."}', r"line 1: .*'\.'"),
        (
            "q.jsonl",
            '{"question": ["?"], "answer": 2}',
            r"line 1: .*'question'.* list",
        ),
        ("q.jsonl", '{"question": "2?", "answer": {"value": 2}}', "answer .*object"),
        ("q.json", '{"rows": []}', "q.json, item 1 .*rows"),
        ("q.json", "17", "q.json .*17"),
        ("q.json", '["a question?"]', 'q.json, item 1: .*"a question\\?"'),
        ("q.jsonl", '{"id": 1, "question": "1?", "answer": 1}\n' * 2, "line 2: id '1'"),
        ("q.parquet", GOOD, r"q\.parquet .*row 0: .*magic bytes"),
        ("q.jsonl.gz", GOOD, r"q\.jsonl\.gz .*line 0"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, data: str, says: str) -> None:
    (tmp_path / name).write_bytes(data.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=says) as raised:
        read_questions(tmp_path / name)
    assert str(tmp_path / name) in str(raised.value)
    assert len(str(raised.value)) < 600


def test_utf_16_is_told_from_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text(TABLE, encoding="utf-16")
    with pytest.raises(ConfigurationError, match=r"line 1 .*UTF-16"):
        read_questions(tmp_path / "q.csv")


def test_a_compressed_file_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl.gz"
    lines = "".join(json.dumps({"question": f"{at} + {at * 7919 % 1000}?", "answer": at}) + "\n" for at in range(5000))
    whole = gzip.compress(lines.encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigurationError, match=r"q\.jsonl\.gz .*line [1-9]\d+"):
        read_questions(path)
    assert len(read_questions(path, limit=100)) == 100, "what is not needed is not read"


def test_a_parquet_that_was_cut_off_or_lacks_a_column(tmp_path: Path) -> None:
    path = written(tmp_path / "q.parquet")
    with pytest.raises(ConfigurationError, match=r"q\.parquet, row 1 .*right; .*id, qu"):
        read_questions(path, answer_field="right")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ConfigurationError, match=r"q\.parquet .*row 0"):
        read_questions(path)
    for missing in (tmp_path / "no.parquet", tmp_path / "no.csv.gz"):
        with pytest.raises(ConfigurationError, match=r"no\.\w+.*no such file"):
            read_questions(missing)


@pytest.mark.parametrize("name", ["folder.jsonl", "folder.parquet"])
def test_a_folder_is_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigurationError, match=r"folder\.\w+ is a folder"):
        read_questions(tmp_path / name)


def test_a_large_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "q.jsonl", *[{"question": "x" * 100_000, "answer": 1}] * 120)
    tracemalloc.start()
    try:
        assert sum(1 for _ in rows_of(path)) == 120
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_text_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "q.txt.gz"
    path.write_bytes(gzip.compress("\ufeffone?\n\ntwo?\none?\nthree?".encode()))
    assert read_unlabelled(path, limit=2) == [("one?", None), ("two?", None)]
    (tmp_path / "q.txt").write_bytes("eins?\ngrün?\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"q\.txt, line 2"):
        read_unlabelled(tmp_path / "q.txt")
