"""What a release repeats in several files is the same in each."""

import re
import tomllib
from typing import Final

import yaml

from langchain_reasc import __version__

from .check_snippets import ROOT

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
    run = {target for text in workflows for target in re.findall(r"run: make ([\w-]+)", text)}
    assert {"test", "lint", "docs", "dist"} <= run <= targets
