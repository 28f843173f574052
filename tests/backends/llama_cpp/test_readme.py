"""The examples of the backends' README run as they stand, on the shipped model."""

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[3] / "backends" / "README.md").read_text(encoding="utf-8")


def run_example(holding: str) -> None:
    """Run the one example of the backends' README that holds a text."""
    [code] = (code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if holding in code)
    names: dict[str, Any] = {}
    try:
        exec(compile(code, "README.md", "exec"), names)
    finally:
        names["model"].close()


def test_the_readme_s_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_example("samples.cancel()")
    ends = re.findall(r"^(\d) ?.*?\{'input_tokens': \d+", capsys.readouterr().out, re.DOTALL | re.MULTILINE)
    assert sorted(ends) == [str(index) for index in range(8)]
    run_example("with_structured_output")
    called, forced, total, answer = capsys.readouterr().out.strip().splitlines()
    assert called == "[]" or called.startswith("[{'name': 'Weather'")
    assert forced.startswith("[{'name': 'Weather', 'args': {'city': ")
    assert " dollars=" in total
    assert answer in ("yes", "no")
