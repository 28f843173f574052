"""``reasc probe``."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backends.openai.fake_server import Fake, llama_server, lm_studio, serving, vllm
from langchain_reasc.cli import app, console


def probe(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["probe", *map(str, arguments)], prog_name="reasc")
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)  # no traceback
    return result


def rows(shown: str) -> dict[str, str]:
    return {line[:23].strip(): line[23:].strip() for line in shown.splitlines()}


def test_help_teaches_with_examples() -> None:
    shown = probe("--help").stdout
    assert "Examples" in shown and "reasc probe http://localhost:8080" in shown


def test_it_shows_what_a_server_supports() -> None:
    with serving(llama_server()) as fake:
        shown = rows(probe(fake.url).stdout)
    assert shown["server"].strip() == "llama-server b6900-abc"
    assert shown["logprobs"] == "yes, up to 100 alternatives"
    assert "repetition_penalty (as repeat_penalty)" in shown["sampling parameters"]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_long_name_is_shown_whole(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    name = "/models/" + "a-model-with-a-very-long-name/" * 5
    monkeypatch.setattr(console, "_WIDTH", columns)
    with serving(vllm(models=(name,))) as fake:
        shown = probe(fake.url).stdout
    assert name in "".join(line[23:].strip() for line in shown.splitlines()) and "…" not in shown
    assert max(map(len, shown.splitlines())) <= columns


def test_it_prints_data() -> None:
    with serving(vllm(k=5)) as fake:
        data = json.loads(probe(fake.url, "--json").stdout)
    assert (data["server"], data["top_logprobs"], data["learned"]) == ("vllm", 5, "probe")


def test_it_says_what_is_missing() -> None:
    with serving(lm_studio()) as fake:
        result = probe(fake.url)
    assert rows(result.stdout)["logprobs"] == "no"
    assert "none come back: votes are counted" in " ".join(result.stderr.split())


def test_servers_are_compared_and_one_that_is_down_is_named(fake: Fake, gone: Fake) -> None:
    result = probe(fake.url, gone.url, code=1)
    assert "vllm 0.11.0" in result.stdout
    assert f"note on {fake.url}: whether the server stops" in " ".join(result.stderr.split())
    assert f"\nerror: no server at {gone.url}" in result.stderr


def test_no_server_is_one_line(gone: Fake) -> None:
    stderr = probe(gone.url, code=1).stderr
    assert stderr.startswith(f"error: no server at {gone.url} ") and stderr.count("\n") == 1
    assert "is it running?" in stderr


def test_the_key_comes_from_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MY_KEY", "hush-hush")
    cache = tmp_path / "servers.json"
    with serving(vllm(key="hush-hush")) as fake:
        assert "asks for a key" in " ".join(probe(fake.url, code=1).stderr.split())
        shown = probe(fake.url, "--key-variable", "MY_KEY", "--cache", cache, "--json")
    assert "hush" not in shown.output + cache.read_text()
    assert "OTHER_KEY is not set" in probe(fake.url, "--key-variable", "OTHER_KEY", code=1).stderr


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("langchain_reasc_openai", "langchain_openai")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "langchain_openai", None)  # an import of it fails
    assert 'pip install ".[openai]"' in probe("http://localhost:1", code=1).stderr.replace("\n", " ")
