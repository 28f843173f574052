"""Importing the backend loads neither llama.cpp nor the parts of the core that it does not use."""

from backends.llama_cpp.faces import printed

NEEDED = (
    "_lazy",
    "_version",
    "complaints",
    "exceptions",
    "method",
    "models",
    "threads",
    "untrusted",
)
CODE = """
import sys, langchain_reasc_llama_cpp
print(*(name for name in sys.modules if name.startswith(("langchain_reasc.", *sys.argv[1:]))))
"""


def test_importing_the_backend_loads_what_it_uses_of_the_core_and_nothing_heavy() -> None:
    heavy = ["llama_cpp", "scipy", "sklearn", "pandas", "transformers", "openai", "numpy.random", "jinja2", "diskcache"]
    loaded = printed(CODE, *heavy).split()
    needed = tuple(f"langchain_reasc.{name}" for name in NEEDED)
    more = [name for name in loaded if not name.startswith(needed)]
    assert more == []
    assert not any(name.startswith("langchain_reasc.models.logprobs") for name in loaded)
