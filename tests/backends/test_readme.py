"""The examples of the backends' README run as they stand, on the shipped model."""

import re
from pathlib import Path

import pytest
from langchain_reasc_llama_cpp import ChatLlamaCpp

README = (Path(__file__).parents[2] / "backends" / "README.md").read_text()


def test_tools_and_structured_output(shipped: ChatLlamaCpp, capsys: pytest.CaptureFixture[str]) -> None:
    section = README[README.index("### Tools and structured output") :]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    exec(compile(code, "README.md", "exec"), {"model": shipped})
    called, forced, total, answer = capsys.readouterr().out.strip().splitlines()
    assert called == "[]" or called.startswith("[{'name': 'Weather'")
    assert forced.startswith("[{'name': 'Weather', 'args': {'city': ")
    assert " dollars=" in total
    assert answer in ("yes", "no")
