"""How llama.cpp is built: AMX only where the compiler is seen to be right, the user's options kept, no old wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full  # starts compilers and builds

BACKENDS = Path(__file__).parents[3] / "backends"
SCRIPT, INCLUDE = BACKENDS / "llama_cpp_build.sh", BACKENDS / "llama_cpp_build.cmake"
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
LEFT_OUT = "-U__AMX_INT8__"

_RIGHT = "echo '  movzbl rows_of_a_tile(%rip), %eax'; echo '  movb %al, -16(%rsp)'; echo '  ldtilecfg -64(%rsp)'"
_FAULTY = "echo '  movb $1, -64(%rsp)'; echo '  ldtilecfg -64(%rsp)'"
_UNAWARE = "echo 'error: unrecognized command-line option -mamx-tile' >&2; exit 1"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def compile_options(folder: Path, compiler: str, *arguments: str) -> str:
    """What CMake compiles a project named as llama-cpp-python's with."""
    assert CMAKE is not None, "cmake comes with the test dependencies"
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(llama_cpp NONE)\n"
        'get_directory_property(found COMPILE_OPTIONS)\nmessage(STATUS "options:${found}.")\n'
    )
    given = [f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={INCLUDE}", *arguments]
    done = subprocess.run([CMAKE, "-S", folder, "-B", folder / "b", *given], capture_output=True, text=True, check=True)
    return done.stdout.split("options:")[1].split(".\n")[0]


X86 = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=x86_64")


@pytest.mark.parametrize(("says", "kept"), [(_RIGHT, True), (_FAULTY, False), (_UNAWARE, False)])
def test_amx_is_kept_only_where_the_assembly_shows_the_store(says: str, kept: bool, tmp_path: Path) -> None:
    compiler = program(tmp_path / "c++", f'[[ "$*" == *"-O3 -mamx-tile -S"* ]] || exit 2\n{says}')
    assert (LEFT_OUT not in compile_options(tmp_path, str(compiler), *X86)) is kept


@pytest.mark.parametrize("compiler", [name for name in ("g++", "clang++", "clang++-14") if shutil.which(name)])
def test_real_compilers(compiler: str, tmp_path: Path) -> None:
    """GCC 11.3 and 12.2 have the fault, 12.4, 13.3 and 14.2 do not, and clang never had it."""
    target = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    if not target.startswith("x86_64"):
        pytest.skip("not a compiler for x86")
    options = compile_options(tmp_path, compiler, *X86)
    version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=False).stdout
    macros = subprocess.run([compiler, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True, check=True)
    gcc = () if "__clang__" in macros.stdout else tuple(int(part) for part in version.split(".")[:2])
    if (11, 3) < gcc < (12, 0) or (12, 2) < gcc < (12, 4):
        pytest.skip(f"nobody has looked at GCC {version}")
    assert (LEFT_OUT not in options) is (not gcc or gcc >= (12, 4))


class Clone:
    """A folder with a virtual environment whose pip only writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._calls = folder, folder / "calls"
        self.pip_says("echo '[1/2] Building'; echo '[2/2] Building'")

    def pip_says(self, text: str) -> None:
        body = f'printf "%s\\n" "$*" "CMAKE_ARGS=$CMAKE_ARGS" >>{self._calls}\n{text}'
        program(self.folder / ".venv" / "bin" / "python", body)

    def install(self, **environment: str) -> subprocess.CompletedProcess[str]:
        self._calls.unlink(missing_ok=True)
        inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
        home = {"HOME": str(self.folder), "CXX": "true"}
        return subprocess.run(
            ["bash", str(SCRIPT), ".venv", "llama-cpp-python>=0.3.36"],
            cwd=self.folder,
            env=inherited | home | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> str:
        return self._calls.read_text() if self._calls.exists() else ""

    @property
    def cache(self) -> str:
        return self.calls.split("--cache-dir ")[1].split()[0]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_a_fresh_clone_builds_once_and_again_with_other_options(clone: Clone) -> None:
    done = clone.install()
    assert done.returncode == 0, done.stderr
    assert "compiling [2/2]" in done.stdout and "Built in" in done.stdout
    assert f"CMAKE_ARGS=-DLLAVA_BUILD=OFF  '-DCMAKE_PROJECT_llama_cpp_INCLUDE={INCLUDE}'" in clone.calls
    assert "--force-reinstall" not in clone.calls and "--no-binary" not in clone.calls
    again = clone.install()
    assert (again.returncode, again.stdout, clone.calls) == (0, "", "")
    given = "-DGGML_CUDA=on -DCMAKE_C_FLAGS=\"-g -O1\" -DLLAVA_BUILD=ON '-DX=a b'"
    assert clone.install(CMAKE_ARGS=given, CFLAGS="-pipe").returncode == 0
    assert f"CMAKE_ARGS=-DLLAVA_BUILD=OFF {given} '-DCMAKE_PROJECT_llama_cpp_INCLUDE=" in clone.calls  # and it wins
    assert "--no-binary llama-cpp-python" in clone.calls  # a prebuilt wheel would not have these options
    assert "--force-reinstall --no-deps llama-cpp-python" in clone.calls
    for same in ({"CMAKE_ARGS": given, "CFLAGS": "-pipe"}, {}):
        clone.install(**same)
        assert clone.calls == ""


def test_a_build_that_fails_shows_its_end_and_keeps_what_is_there(clone: Clone) -> None:
    clone.install()
    clone.pip_says("echo 'fatal error: no CUDA toolkit'; exit 1")
    done = clone.install(CMAKE_ARGS="-DGGML_CUDA=on")
    assert done.returncode == 1
    assert "llama-cpp-python>=0.3.36" in done.stderr and "no CUDA toolkit" in done.stderr
    assert clone.install().returncode == 0 and clone.calls == ""
    assert clone.install(CMAKE_ARGS="-DGGML_CUDA=on").returncode == 1  # not taken for built


def test_a_prebuilt_wheel_and_no_cache(clone: Clone) -> None:
    clone.install(LLAMA_CPP_WHEEL="some where/llama.whl")
    assert clone.calls.startswith("-m pip --disable-pip-version-check install --quiet some where/llama.whl\n")
    clone.install(LLAMA_CPP_WHEEL="some where/llama.whl")
    assert clone.calls == ""
    clone.install(PIP_NO_CACHE_DIR="1", CMAKE_ARGS="-DGGML_CUDA=on")
    assert clone.calls.index("--cache-dir") < clone.calls.index("--no-cache-dir")


def test_no_compiler(clone: Clone, tmp_path: Path) -> None:
    folder = tmp_path / "few programs"
    folder.mkdir()
    for name in ("bash", "cat", "dirname", "env"):
        (folder / name).symlink_to(str(shutil.which(name)))
    done = clone.install(PATH=str(folder), CXX="c++")
    assert done.returncode == 1
    assert "C++ compiler" in done.stderr


def test_make_hands_over_what_it_is_given(clone: Clone) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(BACKENDS.parent / name, clone.folder)
    shutil.copytree(BACKENDS, clone.folder / "backends", ignore=lambda *_: ["langchain_reasc_llama_cpp"])
    (clone.folder / ".venv" / ".made").touch()
    given = "-DGGML_CUDA=on -DCMAKE_C_FLAGS=\"-g -O1\" '-DX=a b'"

    def make(*arguments: str) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "CMAKE", "LLAMA_CPP"))
        }
        home = {"HOME": str(clone.folder), "XDG_CACHE_HOME": ""}
        command = ["make", "--no-print-directory", ".venv/.llama-cpp", *arguments]
        subprocess.run(command, cwd=clone.folder, env=environment | home, capture_output=True, check=True)

    make(f"CMAKE_ARGS={given}")
    assert f" {given} " in clone.calls
    built = (clone.folder / ".venv" / ".llama-cpp").stat().st_mtime_ns
    make()
    assert clone.calls.count("install") == 1
    assert (clone.folder / ".venv" / ".llama-cpp").stat().st_mtime_ns == built  # nothing that depends on it runs again
