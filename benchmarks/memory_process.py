"""The process whose memory is measured: ``memory_process.py OPTIONS ABSENT``, run as a
file, so that it begins bare.

It prints bytes by what holds them, as JSON; llama.cpp's log goes to the standard
errors.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

KV, COMPUTE = 0, 2  # ggml_backend_buffer_usage
PAGE = 4096
ABSENT = frozenset(json.loads(sys.argv[2]))


BUFFERS: dict[int, int] = {}
"""Address of each compute buffer of llama.cpp -> its use; -1 if it is not in main
memory.
"""


class Absent:
    """Refuses packages that are installed, but were not to be."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def ask(what: str, buffer: int, kind: Any = ctypes.c_size_t) -> int:
    """What ggml says of a buffer."""
    function = getattr(
        sys.modules["llama_cpp"].llama_cpp._lib, f"ggml_backend_buffer_{what}"
    )
    function.argtypes, function.restype = [ctypes.c_void_p], kind
    return int(function(buffer))


def note(tensor: int, wanted: bool, _: object) -> bool:
    """llama.cpp calls this with each tensor it computes; False: it need not stop after
    it.
    """
    buffer = ctypes.c_void_p.from_address(tensor + 8).value  # ggml_tensor.buffer
    if buffer and buffer not in BUFFERS:
        host = ask("is_host", buffer, ctypes.c_bool)
        BUFFERS[buffer] = ask("get_usage", buffer, ctypes.c_int) if host else -1
    return False


NOTE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)(
    note
)


def held(usage: int, size_of: Callable[[int, int], int]) -> int:
    """Bytes of all buffers of one use, by what ``size_of`` says of a start and a
    length.
    """
    return sum(
        size_of(ask("get_base", each), ask("get_size", each))
        for each in BUFFERS
        if BUFFERS[each] == usage
    )


def watched(default: Callable[[], Any]) -> Any:
    """Parameters of a context that tells :func:`note`."""
    parameters = default()
    parameters.cb_eval = ctypes.cast(NOTE, type(parameters.cb_eval))
    return parameters


def resident() -> int:
    """Bytes of this process in main memory."""
    kinds = ("RssAnon", "RssFile", "RssShmem")
    with open("/proc/self/status") as status:
        return (
            sum(int(line.split()[1]) for line in status if line.startswith(kinds))
            * 1024
        )


def mapped(file: str) -> int:
    """Bytes in main memory of a mapped file."""
    found, ours = 0, False
    with open("/proc/self/smaps") as areas:
        for line in areas:
            words = line.split()
            if "-" in words[0]:
                ours = " ".join(words[5:]) == file
            elif words[0] == "Rss:" and ours:
                found += int(words[1]) * 1024
    return found


def pages(start: int, size: int) -> int:
    """Bytes of those pages in main memory that an area lies on."""
    first = start // PAGE * PAGE
    there = (ctypes.c_ubyte * (-(-(start + size - first) // PAGE)))()
    if (
        ctypes.CDLL(None).mincore(
            ctypes.c_void_p(first), ctypes.c_size_t(len(there) * PAGE), there
        )
        != 0
    ):
        raise OSError("mincore failed")
    return sum(page & 1 for page in there) * PAGE


def main(options: dict[str, Any]) -> dict[str, int]:
    """Load the model, decode eight answers to a prompt of 500 tokens, and look."""
    bare = resident()
    import langchain_core.language_models.chat_models  # noqa: F401  # the backend needs it too
    import llama_cpp

    others = resident()
    from langchain_reasc_llama_cpp import ChatLlamaCpp

    imported = resident()
    llama_cpp.llama_context_default_params = partial(
        watched, llama_cpp.llama_context_default_params
    )
    model = ChatLlamaCpp(verbose=True, **options)
    with model.sample(
        "Why does it rain so often in the mountains? " * 19, n=8, max_tokens=24
    ) as samples:
        for _ in samples:
            pass
    return {
        "interpreter": bare,
        "others": others - bare,
        "ours": imported - others,
        "worked": resident(),
        "weights": mapped(options["model_path"]),
        "KV": held(KV, pages),
        "compute": held(COMPUTE, pages),
        "reserved": held(COMPUTE, lambda start, size: size),
    }


sys.meta_path.insert(0, Absent)
print(json.dumps(main(json.loads(sys.argv[1]))))
