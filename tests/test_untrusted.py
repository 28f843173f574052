"""Every file that is read may be anything: what is wrong with it is an error of ours, and soon."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import embedded_model_path

from langchain_reasc.answers import extractor, vote_of
from langchain_reasc.calibration import load_calibration
from langchain_reasc.data import Template, read_questions, read_unlabelled
from langchain_reasc.exceptions import ReASCError

CALIBRATION = json.loads(embedded_model_path().with_name("calibration.json").read_text(encoding="utf-8"))
HOSTILE = {
    "300 lists": "[" * 300 + "]" * 300,
    "100,000 lists": "[" * 100_000 + "]" * 100_000,
    "6,000 digits": "9" * 6000,
    "1e400": "1e400",
}


def within(values: dict[str, Any], name: str, text: str) -> str:
    """A JSON object in which one field holds this text."""
    return json.dumps({**values, name: "@"}).replace('"@"', text)


READ: dict[str, tuple[str, Callable[[str], str], Callable[[Path], object]]] = {
    "a calibration": ("c.json", str, load_calibration),
    "a calibration's field": ("c.json", lambda text: within(CALIBRATION, "mean", text), load_calibration),
    "questions": ("q.json", lambda text: f"[{within({'answer': '7'}, 'question', text)}]", read_questions),
    "an answer": ("q.jsonl", lambda text: within({"question": "?"}, "answer", text), read_questions),
    "a template": (
        "t.json",
        lambda text: f'[["human", "{{question}}"], {text}]',
        lambda path: Template.from_option(str(path)),
    ),
}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("kind", READ)
def test_json_that_no_reader_could_use_is_an_error_of_ours(tmp_path: Path, kind: str, text: str) -> None:
    name, wrapped, read = READ[kind]
    path = tmp_path / name
    path.write_text(wrapped(HOSTILE[text]) + "\n", encoding="utf-8")
    try:
        read(path)
    except ReASCError as error:
        assert "recursion" not in str(error) and "set_int_max_str_digits" not in str(error)
        assert name in str(error)
    else:  # a number may be an answer, or a question
        assert text in ("6,000 digits", "1e400") and kind in ("questions", "an answer")


def test_a_list_in_a_cell_that_is_none_is_text(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    deep = '["a",' + "[" * 100_000
    path.write_text("question,answer\n" + f'"{deep.replace(chr(34), chr(34) * 2)}",7\n')
    assert read_questions(path)[0].input == deep


@pytest.mark.parametrize("answer", ["auto", "json:a.b", "boxed"])
def test_texts_of_models_break_no_extractor(answer: str) -> None:
    for text in (*HOSTILE.values(), '{"a": ' + "9" * 6000 + "}", '{"a":' * 5000):
        vote_of(AIMessage(text), extractor(answer))


OPENING = """
import resource, sys
from pathlib import Path
from langchain_reasc.calibration import load_calibration
from langchain_reasc.cli import main
from langchain_reasc.data import read_questions
from langchain_reasc.exceptions import ReASCError
from langchain_reasc_lab.pools import read_pool
from langchain_reasc_llama_cpp import ChatLlamaCpp

resource.setrlimit(resource.RLIMIT_AS, (6 << 30,) * 2)
for path in map(Path, sys.argv[1:]):
    for read in (load_calibration, read_questions, read_pool, ChatLlamaCpp):
        name = "model_path" if read is ChatLlamaCpp else "source" if "questions" in read.__module__ else "path"
        try:
            read(**{name: path})
        except ReASCError as error:
            print(error)
sys.argv[1:] = ["ask", "?", "--model-class", "langchain_openai.ChatOpenAI", "--model-kwargs", str(path)]
main()
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no devices and no pipes with names here")
def test_a_device_and_a_pipe_that_nobody_writes_to_are_refused_at_once(tmp_path: Path) -> None:
    device, pipe = tmp_path / "device", tmp_path / "pipe"
    device.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    done = subprocess.run([sys.executable, "-c", OPENING, device, pipe], capture_output=True, text=True, timeout=600)
    assert "Traceback" not in done.stderr
    refused = [*done.stdout.splitlines(), " ".join(done.stderr.split())]
    assert [re.findall(r"it is a (\w+), not a file", one) for one in refused] == [["device"]] * 4 + [["pipe"]] * 5


@pytest.mark.full
def test_a_small_compressed_file_is_not_unpacked_without_end(tmp_path: Path) -> None:
    line = json.dumps({"question": "?" * 10_000, "answer": "7"}) + "\n"
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(gzip.compress(line.encode() * 6_800, 1))
    with pytest.raises(ReASCError, match="64 MiB"):
        read_unlabelled(path)


def test_what_a_shell_hands_over_is_read() -> None:
    end, beginning = os.pipe()
    os.write(beginning, b"How much is 2 + 5?\n")
    os.close(beginning)
    assert [question for question, _ in read_unlabelled(Path(f"/dev/fd/{end}"))] == ["How much is 2 + 5?"]
    os.close(end)
