#!/usr/bin/env bash
# Installs llama-cpp-python, which comes as source: `llama_cpp_build.sh VENV REQUIREMENT`. The Makefile runs it every time.
#   CMAKE_ARGS        further build options; the user's come after ours, so that they win
#   LLAMA_CPP_WHEEL   a prebuilt wheel instead
# The stamp VENV/.llama-cpp holds what was asked for: something else builds again, nothing keeps what is there.
set -euo pipefail

venv=$1 requirement=$2
here=$(cd "$(dirname "$0")" && pwd)
stamp=$venv/.llama-cpp log=$venv/llama-cpp-build.log
asked=${CMAKE_ARGS:-}${LLAMA_CPP_WHEEL:-} again=
pip=("$venv/bin/python" -m pip --disable-pip-version-check install)

if [ -e "$stamp" ]; then
  if [ -z "$asked" ] || [ "$asked" = "$(cat "$stamp")" ]; then exit 0; fi
  again="--force-reinstall --no-deps"
fi

if [ -n "${LLAMA_CPP_WHEEL:-}" ]; then
  # shellcheck disable=SC2086  # two words
  "${pip[@]}" --quiet $again "$LLAMA_CPP_WHEEL"
  printf %s "$asked" >"$stamp"
  exit 0
fi

command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || {
  echo "a C++ compiler is needed to build llama.cpp: apt install build-essential (Debian, Ubuntu), dnf install gcc-c++ (Fedora), xcode-select --install (macOS); or give a prebuilt wheel: make LLAMA_CPP_WHEEL=path.whl" >&2
  exit 1
}

# pip keeps the wheels it builds, and gives them back whatever CMAKE_ARGS and compiler are. So everything that shapes
# the build names a cache of its own; a fresh clone on the same machine finds its wheel there.
shape=$(
  cat "$here/llama_cpp_build.cmake"
  env | grep -E '^(CMAKE_ARGS|CMAKE_GENERATOR|CUDA[A-Z]*|(C|CXX|CPP|LD)FLAGS|CC|CXX)=' | sort || true
  "${CXX:-c++}" --version 2>&1 || true
  uname -ms
  grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null || true
)
cache=${XDG_CACHE_HOME:-${HOME:-$venv}/.cache}/langchain-reasc/llama-cpp-$(cksum <<<"$shape" | tr ' ' -)

# No pictures, and no AMX kernels where the compiler translates them wrongly; the .cmake says how that is known.
export CMAKE_ARGS="-DLLAVA_BUILD=OFF ${CMAKE_ARGS:-} '-DCMAKE_PROJECT_llama_cpp_INCLUDE=$here/llama_cpp_build.cmake'"
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}
options="${PIP_NO_CACHE_DIR:+--no-cache-dir} ${asked:+--no-binary llama-cpp-python} $again"

echo "Building llama.cpp from source, once; 4 to 8 minutes on 2 cores (log: $log)"
# Its progress is shown as one line; the whole log is kept.
# shellcheck disable=SC2086  # several words
if "${pip[@]}" --verbose --cache-dir "$cache" $options "$requirement" 2>&1 | tee "$log" | awk '
    match($0, /\[[0-9]+\/[0-9]+\]/) {
      step = substr($0, RSTART, RLENGTH)
      if (step != last) printf "\r  compiling %s   ", step
      last = step; fflush()
    }
    END { print "" }'
then
  echo "Built in $SECONDS s."
  printf %s "$asked" >"$stamp"
else
  echo "the build of $requirement failed; the end of $log:" >&2
  tail -n 15 "$log" >&2
  exit 1
fi
