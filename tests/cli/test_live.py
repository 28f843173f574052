"""``reasc ask`` on a terminal: the first response as it comes, and one line with the votes, which leave nothing."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import embedded_model_path
from rich.cells import cell_len
from rich.console import Console

from cli.interrupted import TESTS
from cli.test_commands import reasc
from langchain_reasc.cli.live import LiveVotes
from langchain_reasc.sampling import SampledResponse

EASY = "Emma has 27 old and 14 new cups. How many more does Emma need to have 60?"
ASKED = ("ask", EASY, "--seed", "1", "--calibration", "none")
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"  # the cursor
shipped = pytest.mark.skipif(not embedded_model_path().exists(), reason="the shipped model is not built yet")


def on_terminal(
    *arguments: str, environment: Mapping[str, str] | None = None, interrupt_at: str | None = None
) -> tuple[str, str, int]:
    """What a command says on stdout, and on a terminal that is its stderr; and its exit code."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from langchain_reasc.cli import main; main()", *arguments]
    terminal = {**os.environ, "PYTHONPATH": TESTS, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, text=True, env={**terminal, **(environment or {})}
    ) as running:
        os.close(theirs)
        told = ""
        while running.poll() is None or select.select([ours], [], [], 0)[0]:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    told += os.read(ours, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
            if interrupt_at and interrupt_at in told:
                running.send_signal(signal.SIGINT)
                interrupt_at = None
        os.close(ours)
        said, _ = running.communicate(timeout=600)
    return said, told.replace("\r\n", "\n"), running.returncode


@pytest.mark.full
@shipped
def test_a_terminal_shows_how_far_it_is_and_keeps_what_a_file_gets() -> None:
    said, told, code = on_terminal(*ASKED)
    shown, _, kept = told.rpartition(SHOWN)
    piped = reasc(*ASKED)
    assert (said, code) == (piped.stdout, 0)
    assert re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", kept).strip() == piped.stderr.strip()
    assert "loading the model" in shown and "0 of at most 16" in shown
    assert re.search(r"4 of at most 16; 19: \d votes", shown) and "The answer is" in shown
    assert shown.count(HIDDEN) == 1 and HIDDEN not in kept


@pytest.mark.full
@shipped
def test_ctrl_c_leaves_the_terminal_as_it_was() -> None:
    many = ("--rule", "fixed_budget:samples=9000", "--max-samples", "9000")
    said, told, code = on_terminal(*ASKED, *many, interrupt_at="4 of at most 9000")
    assert (said, code) == ("", 130)
    assert told.count(HIDDEN) == told.count(SHOWN) == 1
    assert told.rpartition(SHOWN)[2].strip().endswith("interrupted")


@pytest.mark.full
@shipped
@pytest.mark.parametrize(("options", "environment"), [(("--json",), {}), ((), {"TERM": "dumb"})], ids=["json", "dumb"])
def test_nothing_is_shown_where_nobody_looks(options: tuple[str, ...], environment: Mapping[str, str]) -> None:
    said, told, code = on_terminal(*ASKED, *options, environment=environment)
    assert said and code == 0 and HIDDEN not in told and "of at most" not in told


WIDE, LONG = "東京都は日本の首都です。", "supercalifragilistic " * 40


@pytest.mark.parametrize("columns", [12, 40, 80])
@pytest.mark.parametrize(
    "text", [WIDE * 300, LONG, "a\x1b[2Jb\r" * 200, "line\n" * 50], ids=["wide", "long", "escapes", "lines"]
)
def test_it_fits_on_any_terminal(columns: int, text: str) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=columns, height=8)
    live = LiveVotes(console, 16, quiet=True)
    live.on_chat_model_start(run_id=1)
    live.on_chat_model_start(run_id=2)
    for piece in (text, "its end"):
        live.on_llm_new_token(piece, run_id=1)
        live.on_llm_new_token("of another response", run_id=2)
    for answer in (text, "9", None, "9", text, text):
        live.add(SampledResponse(0, AIMessage(text), used=True, answer=answer, weight=1.0), printed=False)
    console.print(live)
    *said, line = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    plain = [re.sub(r"\x1b\[[\d;]*m", "", one) for one in said]
    assert all(cell_len(one) <= columns for one in [*plain, line]) and len(said) <= 6
    assert "itsend" in "".join(plain).replace(" ", "") and "another" not in "".join(plain)  # old rich breaks words
    assert not re.search(r"\x1b\[2J|\r", "".join(said)) and line[2:].startswith("6 of at most"[: columns - 3])
