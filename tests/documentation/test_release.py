"""What a release repeats in several files is the same in each."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from langchain_reasc import __version__

from .check_snippets import ROOT
from .check_wheel import EXTRAS

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_file_names_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## \[?(\d[\w.]*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest and newest[1] == citation["version"] == __version__


def test_the_wheel_is_checked_for_the_packages_that_it_holds() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(PROJECT["tool"]["check-wheel-contents"]["toplevel"]) == sorted(path.split("/")[-1] for path in wheel)


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    workflows = [path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    commands = [line for text in workflows for line in re.findall(r"run: make (.*)", text)]
    run = {word for line in commands for word in line.split() if "=" not in word}
    assert {"test", "test-all", "lint", "docs", "dist"} <= run <= targets


def metadata(**environment: str) -> dict[str, Any]:
    """What a wheel would say of itself."""
    command = [sys.executable, "-m", "hatchling", "metadata"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.full
def test_the_links_of_a_release_lead_to_files_of_its_version() -> None:
    repository = "https://github.com/owner/name"
    release = metadata(REPOSITORY=repository)
    links = re.findall(r"\]\(([^)#]+)", release["readme"]["text"])
    own = [link.removeprefix(f"{repository}/") for link in links if link.startswith(repository)]
    assert len(own) > 5 and all(link.startswith("https://") for link in links)
    for link in own:
        kind, tag, path = link.split("/", 2)
        assert tag == f"v{__version__}" and (ROOT / path).is_file()
        assert (kind == "raw") == (Path(path).suffix in {".svg", ".png"})
    assert all(url.startswith(repository) for url in release["urls"].values())
    assert '\npip install "langchain-reasc[openai]"\n' in release["readme"]["text"]


@pytest.mark.full
def test_a_build_without_a_repository_changes_nothing() -> None:
    usual = metadata(REPOSITORY="")
    assert usual["readme"]["text"] == (ROOT / "README.md").read_text(encoding="utf-8") and not usual.get("urls")


def test_every_extra_is_checked_in_the_wheel() -> None:
    assert {*EXTRAS} == {"", *PROJECT["project"]["optional-dependencies"]} - {"ray", "train"}


def test_what_to_install_is_worded_in_one_way() -> None:
    roots = ("langchain_reasc", "lab", "backends", "server/langchain_reasc_server", "docs", "examples")
    files = [path for root in roots for path in (ROOT / root).rglob("*") if path.suffix in {".md", ".py"}]
    known = {*PROJECT["project"]["optional-dependencies"]}
    count = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        # What is installed finds itself; who reads a page has a checkout.
        packages = {"."} if path.suffix == ".md" else {".", "langchain-reasc"}
        for quote, package, named in re.findall(r"pip install ([\"']?)([\w.-]+)\[([\w,-]+)\]", text):
            assert quote == '"' and package in packages and {*named.split(",")} <= known, path
            count += 1
        assert "pip install langchain-reasc" not in text, path
    assert count > 10
