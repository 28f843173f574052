"""Runs the llama-server of the xllamacpp wheel until its input ends; prints its address. A process of its own."""

import json
import os
import sys
from typing import Any

import xllamacpp


def serve(options: dict[str, Any]) -> None:
    answer = os.fdopen(os.dup(1), "w")  # llama.cpp writes to the standard output as well
    os.dup2(2, 1)
    server = xllamacpp.Server(_parameters(options))
    print(server.listening_address, file=answer, flush=True)
    sys.stdin.read()  # ends with whoever started this process, even by a kill
    os._exit(0)  # the wheel has no call that ends a server


def _parameters(options: dict[str, Any]) -> xllamacpp.CommonParams:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options["path"]
    parameters.model_alias = {options["name"]}
    parameters.n_parallel, parameters.n_ctx = options["slots"], options["cells"]
    parameters.kv_unified = True
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{options['cache']}")
    parameters.cache_type_k = parameters.cache_type_v = kind
    parameters.n_threads_http = 32  # one is held by each connection that a client keeps open
    parameters.endpoint_metrics = True
    parameters.cache_ram_mib = 0
    parameters.fit_params = parameters.ui = parameters.warmup = False
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.verbosity = -1
    return parameters


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
