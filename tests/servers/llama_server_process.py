"""Runs the llama-server of the xllamacpp wheel until its input ends; prints its address. A process of its own."""

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

_PARENT_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


def serve(options: dict[str, Any]) -> None:
    xllamacpp: Any = importlib.import_module("xllamacpp")
    if sys.platform == "linux":  # asleep between its turns, it would not notice that whoever started it has been killed
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    # What llama.cpp prints goes to the standard errors; the address alone to the standard output.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = xllamacpp.Server(_parameters(xllamacpp, options))
    print(json.dumps({"address": server.listening_address, "build": xllamacpp.get_system_info()}), file=answer)
    answer.close()
    sys.stdin.read()
    os._exit(0)  # the wheel has no call that ends a server


def _parameters(xllamacpp: Any, options: dict[str, Any]) -> Any:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options["path"]
    parameters.n_ctx, parameters.n_parallel = options["cells"], options["slots"]
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = options["threads"]
    parameters.n_gpu_layers = options["n_gpu_layers"]
    kinds = xllamacpp.llama_flash_attn_type
    parameters.flash_attn_type = {
        "auto": kinds.LLAMA_FLASH_ATTN_TYPE_AUTO,
        "on": kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    }[options["flash_attn"]]
    if "name" in options:
        parameters.model_alias = {options["name"]}
    if "cache" in options:
        kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{options['cache']}")
        parameters.cache_type_k = parameters.cache_type_v = kind
    if "http_threads" in options:
        parameters.n_threads_http = options["http_threads"]
    parameters.kv_unified = True
    parameters.cache_ram_mib = 0
    parameters.fit_params = parameters.ui = parameters.warmup = False
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.verbosity = -1
    parameters.endpoint_slots = parameters.endpoint_metrics = options.get("watched", False)
    return parameters


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
