"""The hub is asked where it is named, and never otherwise. Here it is a server of our own, and folders on disk."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from lab.pools.synthetic import write_lines
from servers.exchange import refuses
from servers.fake_server import serving

from langchain_reasc.data import read_questions
from langchain_reasc.exceptions import ConfigurationError

NO_DATA_SET = refuses(404, x_error_code="RepoNotFound")

OF_A_FOLDER = """
import sys

import datasets
from langchain_reasc.data import read_questions

load = datasets.load_dataset
datasets.load_dataset = lambda repository, *more, **options: load(f"{sys.argv[1]}/{repository}", *more, **options)
print([one.references for one in read_questions("hf:someone/trivia/test")])
print([one.reference for one in read_questions("hf:someone/trivia/train[1:]")])
print([one.reference for one in read_questions("hf:someone/sums:hard")])
for source in ("hf:someone/trivia", "hf:someone/trivia/dev", "hf:someone/elsewhere/test"):
    if "elsewhere" in source:
        datasets.load_dataset = load
    try:
        read_questions(source)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.full
@pytest.mark.skipif(find_spec("datasets") is None, reason="datasets is not installed")
def test_splits_configs_and_slices(tmp_path: Path) -> None:
    trivia = tmp_path / "someone" / "trivia"
    trivia.mkdir(parents=True)
    write_lines(trivia / "train.jsonl", *({"question": f"{at}?", "answer": [str(at)]} for at in range(3)))
    write_lines(trivia / "test.jsonl", {"question": "who?", "answer": ["Ann", "Anna"]})
    sums = tmp_path / "someone" / "sums"
    sums.mkdir()
    write_lines(sums / "h.jsonl", {"question": "3 + 4?", "answer": "seven\n#### 7"})
    (sums / "README.md").write_text("---\nconfigs:\n- config_name: hard\n  data_files: h.jsonl\n---\n")
    with serving(NO_DATA_SET, get=NO_DATA_SET) as hub:
        environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.root}
        command = [sys.executable, "-c", OF_A_FOLDER, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=True)
    read, train, only, unnamed, dev, elsewhere = done.stdout.splitlines()
    asked = [*hub.gets, *(one.path for one in hub.exchanges)]
    assert any("someone/elsewhere" in path for path in asked), "what is nowhere on disk is looked for there"
    assert not [path for path in asked if "trivia" in path or "sums" in path], "what lies on disk is read there"
    assert elsewhere.startswith("ConfigurationError") and "hf:someone/elsewhere/test" in elsewhere
    assert read == "[('Ann', 'Anna')]"
    assert (train, only) == ("['1', '2']", "['7']")
    assert unnamed.startswith("ConfigurationError") and "train, test" in unnamed
    assert unnamed.endswith("hf:someone/trivia/train")
    assert "hf:someone/trivia/dev" in dev


@pytest.mark.parametrize("source", ["hf:trivia", "hf:a/b:c:d", "hf:a/b:/test"])
def test_another_spelling_is_refused_before_anything_is_asked(source: str) -> None:
    with pytest.raises(ConfigurationError, match="hf:OWNER/NAME/SPLIT"):
        read_questions(source)


@pytest.mark.parametrize(("name", "package"), [("q.parquet", "pyarrow"), ("hf:a/b/test", "datasets")])
def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    source = name if ":" in name else tmp_path / name
    with pytest.raises(ImportError, match=rf"{package} .*langchain-reasc\[data\]"):
        read_questions(source)
