"""``answer="math"``: what is equal as mathematics is one answer, in a process that is bounded in every way."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.answers import canonical_mathematics, equivalent, extractor, form_of, mathematics, vote_of
from langchain_reasc.exceptions import MissingExtraError

POSIX = pytest.mark.skipif(os.name != "posix", reason="processes and signals of POSIX")

EQUAL: dict[str, list[str]] = json.loads(Path(__file__).with_name("spellings.json").read_text("utf-8"))["math"]


KNOWN_SPLITS = {
    # name -> spellings that are not yet the same; take off the list what is mended
    "120": ["5 \\cdot 24", "5!"],
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_answers_have_one_key(name: str) -> None:
    first, *others = EQUAL[name]
    key = form_of(canonical_mathematics(first)).key
    apart = [spelling for spelling in others if form_of(canonical_mathematics(spelling)).key != key]
    assert apart == KNOWN_SPLITS.get(name, [])


@pytest.mark.parametrize("name", EQUAL)
def test_a_canonical_answer_is_its_own_canonical_answer(name: str) -> None:
    for spelling in EQUAL[name]:
        canonical = canonical_mathematics(spelling)
        assert form_of(form_of(canonical).written).key == form_of(canonical).key  # as a pool is read


def test_different_answers_keep_different_keys() -> None:
    numbers, sets = ("1/3", "0.333", "0.33", "\\sqrt{2}", "1.414"), ("(1,2)", "[1,2]", "(1,2]", "\\{1,2\\}")
    formulas = ("x+1", "x+2", "x>1", "x<1", "x \\le 1", "\\frac{1}{2004!}", "\\frac{1}{2006!}", "101_2", "101_3")
    named = ("f(3) = 7", "f(4) = 7", "x = 2, y = 3", "x = 3, y = 2", "2 + 2 = 4", "3 + 3 = 6", "x = 7")
    marked = ("0x1F", "0x2F", "5\\%", "7 \\pmod{12}", "3 \\pmod{12}", "0.\\overline{3}", "0.\\overline{6}", "0.3")
    different = [*numbers, *sets, *formulas, *named, *marked, "\\pm 5"]
    canonical = [canonical_mathematics(answer) for answer in different]
    assert len({form_of(answer).key for answer in canonical}) == len(different)
    pairs = [(one, other) for one, other in combinations(canonical, 2) if equivalent(one, other)]
    assert pairs == []


def test_votes_of_whole_responses() -> None:
    extract = extractor("math")
    texts = ["\\boxed{\\frac{1}{\\sqrt{2}}}.", "The answer is $\\frac{\\sqrt{2}}{2}$.", "It is \\boxed{\\sqrt{2}/2}"]
    assert {vote_of(AIMessage(text), extract).answer for text in texts} == {"sqrt(2)/2"}
    half = AIMessage("The answer is $2^{-1/2}$. So $", response_metadata={"finish_reason": "length"})
    assert vote_of(half, extract).answer == "sqrt(2)/2"
    assert vote_of(AIMessage("The answer is 1,200."), extract).answer == "1200"
    assert extract.label(r"\frac{\sqrt{3}}{2}") == extract(r"So it is \boxed{\sqrt{3}/2}.")


@pytest.mark.full
def test_many_threads_may_ask_at_once() -> None:
    formulas = [f"\\frac{{{n}}}{{\\sqrt{{3}}}}" for n in range(3, 27, 3)]
    with ThreadPoolExecutor(8) as threads:
        at_once = list(threads.map(canonical_mathematics, formulas))
    assert at_once == ["sqrt(3)", *(f"{n}*sqrt(3)" for n in range(2, 9))]


@pytest.mark.full
def test_one_that_takes_too_long_keeps_its_spelling_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(2) as threads:  # two processes run
        list(threads.map(canonical_mathematics, ["\\sqrt{2}+3", "\\sqrt{2}+4"]))
        monkeypatch.setattr("langchain_reasc.answers.mathematics.SECONDS", 1.0)
        start = time.monotonic()
        slow = threads.submit(canonical_mathematics, "9^{9^{9^9}}")
        assert threads.submit(canonical_mathematics, "\\frac{7}{\\sqrt{7}}").result() == "sqrt(7)"
        assert not slow.done()
        assert slow.result() == "9^{9^{9^9}}" and time.monotonic() - start < 10
    monkeypatch.undo()
    assert canonical_mathematics("\\frac{5}{\\sqrt{5}}") == "sqrt(5)"


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes of this one")
def test_a_worker_that_died_is_replaced() -> None:
    canonical_mathematics("\\sqrt{2}+2")
    workers = _workers(os.getpid())
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    assert all(map(_ends, workers))
    assert canonical_mathematics("\\frac{6}{\\sqrt{6}}") == "sqrt(6)"


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(MissingExtraError, match=r"langchain-reasc\[math\]"):
        extractor("math")
    assert extractor("auto")("\\boxed{2}") == "2"


ASKING = """
import sys, time
from langchain_reasc.answers import extractor
assert not {"sympy", "math_verify"} & set(sys.modules)
assert extractor("math")("\\\\boxed{\\\\sqrt{8}}") == "2*sqrt(2)"
assert not {"sympy", "math_verify"} & set(sys.modules), "imported into this process"
print("asked", flush=True)
"""


def _workers(pid: int) -> list[int]:
    """The children of a process that read formulas."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _read(task / "children").split()
    ]
    return [child for child in children if "mathematics_worker" in _read(Path(f"/proc/{child}/cmdline"))]


def _read(path: Path) -> str:
    """Read what is said of a process or thread; nothing where it has ended since."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _ends(pid: int) -> bool:
    deadline = time.monotonic() + 100
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _runs(pid)


@pytest.mark.full
@POSIX
@pytest.mark.parametrize("ending", [pytest.param("", marks=pytest.mark.slow), "time.sleep(60)"])
def test_the_worker_ends_with_the_interpreter(ending: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ASKING + ending], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    [worker] = _workers(process.pid)
    if ending:
        process.send_signal(signal.SIGKILL)  # no exit handler runs
    process.communicate(timeout=600)
    assert _ends(worker)


GREETING = """
import importlib.util, sys, types
sys.modules |= {name: types.ModuleType(name) for name in ("math_verify", "sympy")}
spec = importlib.util.spec_from_file_location("worker", sys.argv[2])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
worker.canonical = lambda formula: print("read", file=sys.stderr, flush=True)
worker.main()
"""


@pytest.mark.full
def test_the_worker_has_read_a_formula_before_it_is_ready() -> None:
    """The first takes a second, of which the one that is asked about must not be charged."""
    worker = Path(mathematics.__file__).with_name("mathematics_worker.py")
    command = [sys.executable, "-c", GREETING, "3", str(worker)]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ('"ready"\n', "read\n")


FORKING = """
import os
from langchain_reasc.answers import canonical_mathematics
canonical_mathematics("\\\\sqrt{8}")
child = os.fork()
asked, expected = ("\\\\sqrt{12}", "2*sqrt(3)") if child else ("\\\\sqrt{18}", "3*sqrt(2)")
assert canonical_mathematics(asked) == expected
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.full
@pytest.mark.slow  # two processes that load sympy
@POSIX
def test_a_forked_process_has_a_worker_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=600)
