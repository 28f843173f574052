"""The examples of docs/llama_cpp.md run as they stand, on the shipped model."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "llama_cpp.md").read_text(encoding="utf-8")


def run_example(holding: str) -> None:
    """Run the one example of the page that holds a text."""
    [code] = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if holding in code)
    names: dict[str, Any] = {}
    try:
        exec(compile(code, "llama_cpp.md", "exec"), names)
    finally:
        names["model"].close()


@pytest.mark.full  # a grammar over the shipped model
def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_example("samples.cancel()")
    ends = re.findall(r"^(\d) ?.*?\{'input_tokens': \d+", capsys.readouterr().out, re.DOTALL | re.MULTILINE)
    assert sorted(ends) == [str(index) for index in range(8)]
    run_example("with_structured_output")
    called, forced, total, answer = capsys.readouterr().out.strip().splitlines()
    assert called == "[]" or called.startswith("[{'name': 'Weather'")
    assert forced.startswith("[{'name': 'Weather', 'args': {'city': ")
    assert " dollars=" in total
    assert answer in ("yes", "no")
