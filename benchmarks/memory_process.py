"""The process whose memory is measured: ``memory_process.py OPTIONS ABSENT``, run as a file, so that it begins bare.

It prints bytes by what holds them, as JSON; llama.cpp's log goes to the standard errors.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

KV, COMPUTE = 0, 2  # ggml_backend_buffer_usage
PAGE = 4096


class Absent:
    """Refuses packages that are installed, but were not to be."""

    names = frozenset(json.loads(sys.argv[2]))

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in cls.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class Buffers:
    """The buffers of main memory that llama.cpp computes in, found through the tensors it computes."""

    def __init__(self, llama: Any) -> None:
        self._library, self._found = llama.llama_cpp._lib, dict[int, int]()
        callback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
        self._note = callback(self.note)
        default = llama.llama_context_default_params

        def watched() -> Any:
            parameters = default()
            parameters.cb_eval = ctypes.cast(self._note, type(parameters.cb_eval))
            return parameters

        llama.llama_context_default_params = watched

    def note(self, tensor: int, ask: bool, _: object) -> bool:
        """Called with each tensor; False: llama.cpp need not stop after it."""
        buffer = ctypes.c_void_p.from_address(tensor + 8).value  # ggml_tensor.buffer
        if buffer and buffer not in self._found:
            self._found[buffer] = self._ask("get_usage", buffer) if self._ask("is_host", buffer) else -1
        return False

    def held(self, usage: int, size_of: Callable[[int, int], int]) -> int:
        """Bytes of all buffers of one use, by what ``size_of`` says of a start and a length."""
        found = [buffer for buffer, used_for in self._found.items() if used_for == usage]
        return sum(size_of(self._ask("get_base", each), self._ask("get_size", each)) for each in found)

    def _ask(self, what: str, buffer: int) -> int:
        function = getattr(self._library, f"ggml_backend_buffer_{what}")
        function.argtypes = [ctypes.c_void_p]
        function.restype = {"get_usage": ctypes.c_int, "is_host": ctypes.c_bool}.get(what, ctypes.c_size_t)
        return int(function(buffer))


def resident() -> int:
    """Bytes of this process in main memory."""
    kinds = ("RssAnon", "RssFile", "RssShmem")
    with open("/proc/self/status") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith(kinds)) * 1024


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
    if ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(len(there) * PAGE), there) != 0:
        raise OSError("mincore failed")
    return sum(page & 1 for page in there) * PAGE


def main(options: dict[str, Any]) -> dict[str, int]:
    """Load the model, decode eight answers to a prompt of 500 tokens, and look."""
    bare = resident()
    import langchain_core.language_models.chat_models  # noqa: F401  # the backend needs it too
    import llama_cpp

    others = resident()
    from langchain_reasc_llama_cpp import ChatLlamaCpp

    imported, buffers = resident(), Buffers(llama_cpp)
    model = ChatLlamaCpp(verbose=True, **options)
    with model.sample("Why does it rain so often in the mountains? " * 19, n=8, max_tokens=24) as samples:
        for _ in samples:
            pass
    return {
        "interpreter": bare,
        "others": others - bare,
        "ours": imported - others,
        "worked": resident(),
        "weights": mapped(options["model_path"]),
        "KV": buffers.held(KV, pages),
        "compute": buffers.held(COMPUTE, pages),
        "reserved": buffers.held(COMPUTE, lambda start, size: size),
    }


sys.meta_path.insert(0, Absent)  # type: ignore[arg-type]
print(json.dumps(main(json.loads(sys.argv[1]))))
