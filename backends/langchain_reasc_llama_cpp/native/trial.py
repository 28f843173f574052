"""The child process of ``safe_kernels``: decodes with the shipped model and a quantized
copy, or with a user's model.

It runs as a file (``trial.py SITE MODEL FOLDER KERNELS``, or
``trial.py SITE MODEL OVERRIDES any``) and not as a module of the package, because the
package's imports would take several times as long as the trial.
"""

import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TOKENS = 64  # two tiles of rows, so that the tile kernels run, in more than one thread
THREADS = 2
Q4_0 = 2  # LLAMA_FTYPE_MOSTLY_Q4_0, whose embeddings are Q8_0
OVERRIDE_TAGS = {
    bool: ("BOOL", "val_bool"),
    int: ("INT", "val_i64"),
    float: ("FLOAT", "val_f64"),
}
# bytes that loading and using a file may take beside the file's own size
SPARE_MEMORY = 1 << 30
# the largest difference, as a share of the logits' norm; working kernels differ by some
# thousandths
FARTHEST = 0.05


def main(site: str, model: str, folder: str, kernels: str) -> str:
    """Try a build of llama.cpp.

    Args:
        site: the folder of the package llama_cpp.
        model: a GGUF of 16 bits.
        folder: a folder for the model's quantised copy.
        kernels: "all" compares llama.cpp's fastest kernels with its plain ones, "plain"
            runs only the plain ones, and "any" runs whatever the model needs; then
            ``folder`` has overrides of the metadata (JSON) instead.

    Returns:
        "works", "differs" if two kernels give different logits, or "memory" if a file
        takes too much.
    """
    leave_no_core_file()
    sys.path.insert(0, site)
    import llama_cpp as llama

    lines: list[bytes] = []
    receive = llama.llama_log_callback(
        lambda level, text, data: lines.append(text or b"")
    )
    llama.llama_log_set(receive, None)
    llama.llama_backend_init()
    if kernels == "any":
        limit_memory(Path(model).stat().st_size + SPARE_MEMORY)
        use(llama, model, json.loads(folder))
        return "memory" if b"bad_alloc" in b"".join(lines) else "works"
    quantised = Path(folder) / "quantised.gguf"
    options = llama.llama_model_quantize_default_params()
    options.ftype, options.nthread = Q4_0, 1
    if (
        llama.llama_model_quantize(
            model.encode(), str(quantised).encode(), ctypes.byref(options)
        )
        != 0
    ):
        raise RuntimeError("llama.cpp cannot quantise the model")
    for path in (model, str(quantised)):
        plain = logits(llama, path, extra_buffers=False)
        if kernels == "all" and not close(
            logits(llama, path, extra_buffers=True), plain
        ):
            return "differs"
    return "works"


def logits(llama: Any, path: str, *, extra_buffers: bool) -> Any:
    """Return the logits after a prompt and after one more token, which other kernels
    compute; shape (2, V).
    """
    import numpy as np

    settings = llama.llama_model_default_params()
    settings.use_extra_bufts, settings.n_gpu_layers = extra_buffers, 0
    model = llama.llama_model_load_from_file(path.encode(), settings)
    size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    settings = llama.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch = (
        2 * TOKENS,
        THREADS,
        THREADS,
    )
    context = llama.llama_init_from_model(model, settings)
    prompt = (ctypes.c_int32 * TOKENS)(*(7 * i % size for i in range(TOKENS)))
    found = []
    for count in (TOKENS, 1):
        if llama.llama_decode(context, llama.llama_batch_get_one(prompt, count)) != 0:
            raise RuntimeError("llama.cpp cannot decode")
        found.append(
            np.ctypeslib.as_array(
                llama.llama_get_logits_ith(context, -1), (size,)
            ).copy()
        )
    llama.llama_free(context)
    llama.llama_model_free(model)
    return np.stack(found)


def use(llama: Any, path: str, overrides: dict[str, Any]) -> None:
    """Load a model, tokenize every byte and decode a prompt. A damaged file may crash
    the process in each step.
    """
    settings = llama.llama_model_default_params()
    settings.use_extra_bufts, settings.n_gpu_layers = False, 0
    array = overridden(llama, overrides)
    settings.kv_overrides = array if overrides else None
    model = llama.llama_model_load_from_file(path.encode(), settings)
    if (
        not model
        or llama.llama_model_has_encoder(model)
        or not llama.llama_model_has_decoder(model)
    ):
        return  # loading it in the user's process explains why
    vocabulary = llama.llama_model_get_vocab(model)
    if llama.llama_vocab_type(vocabulary) != llama.LLAMA_VOCAB_TYPE_NONE:
        text, tokens = (
            bytes(range(256)) + "<|im_start|> 漢".encode(),
            (ctypes.c_int32 * 1024)(),
        )
        llama.llama_tokenize(
            vocabulary, text, len(text), tokens, len(tokens), True, True
        )
    settings = llama.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch = (
        TOKENS,
        1,
        1,
    )  # one thread never waits for another
    # The same settings as in DecodeContext.
    (
        settings.n_seq_max,
        settings.n_outputs_max,
        settings.kv_unified,
        settings.flash_attn_type,
    ) = 2, 2, True, 0
    if context := llama.llama_init_from_model(model, settings):
        llama.llama_decode(
            context, llama.llama_batch_get_one((ctypes.c_int32 * 4)(), 4)
        )


def overridden(llama: Any, overrides: Mapping[str, Any]) -> Any:
    """Convert overrides of metadata to llama.cpp's array, which ends with an empty key."""
    array = (llama.llama_model_kv_override * (len(overrides) + 1))()
    for item, (key, value) in zip(array, overrides.items(), strict=False):
        tag, member = OVERRIDE_TAGS.get(type(value), ("STR", "val_str"))
        item.key, item.tag = (
            key.encode("utf-8", "replace"),
            getattr(llama, f"LLAMA_KV_OVERRIDE_TYPE_{tag}"),
        )
        setattr(
            item.value,
            member,
            value.encode("utf-8", "replace") if isinstance(value, str) else value,
        )
    return array


def close(these: Any, those: Any) -> bool:
    """Return whether two arrays of logits are nearly equal. Arrays with a NaN are not."""
    import numpy as np

    return bool(np.linalg.norm(these - those) <= FARTHEST * np.linalg.norm(those))


def leave_no_core_file() -> None:
    """Write no core file, because a trial is expected to crash."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more, where Linux counts them. Mapped files
    do not count.
    """
    try:
        import resource

        fields = dict(
            line.split(":", 1)
            for line in Path("/proc/self/status").read_text().splitlines()
        )
        limit = int(fields["VmData"].split()[0]) * 1024 + more
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    except (ImportError, KeyError, ValueError, OSError):
        pass


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
