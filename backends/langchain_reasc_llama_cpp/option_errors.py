"""Says in a line what is wrong with the options given."""

import difflib
from collections.abc import Iterable
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from langchain_reasc.exceptions import ConfigurationError

__all__ = ["check_names", "explained"]

_ELSEWHERE: Final = {
    "max_tokens": ("max_new_tokens", "max_completion_tokens", "n_predict", "num_predict", "max_length"),
    "temperature": ("temp",),
    "repeat_penalty": ("repetition_penalty", "penalty_repeat"),
    "repeat_last_n": ("last_n_tokens_size", "penalty_last_n", "repetition_penalty_range"),
    "frequency_penalty": ("penalty_freq", "frequence_penalty"),
    "presence_penalty": ("penalty_present",),
    "typical_p": ("typ_p", "typical"),
    "mirostat": ("mirostat_mode",),
    "mirostat_tau": ("mirostat_ent",),
    "mirostat_eta": ("mirostat_lr",),
    "top_logprobs": ("top_logprob", "n_probs", "num_logprobs"),
    "seed": ("random_seed", "random_state"),
    "n": ("num_return_sequences", "n_samples", "num_samples", "best_of"),
    "stop": ("stop_sequences", "stop_words", "stop_strings"),
    "grammar": ("gbnf",),
    "model_path": ("model", "model_name", "path", "model_file"),
    "n_ctx": ("num_ctx", "ctx_size", "context_length", "context_size", "max_seq_len", "max_model_len"),
    "n_batch": ("num_batch", "batch_size"),
    "n_ubatch": ("ubatch_size",),
    "n_threads": ("num_thread", "num_threads", "threads"),
    "n_threads_batch": ("threads_batch",),
    "n_gpu_layers": ("num_gpu", "gpu_layers", "ngl"),
    "n_parallel": ("parallel", "num_parallel", "max_num_seqs"),
    "type_k": ("cache_type_k", "ctk"),
    "type_v": ("cache_type_v", "ctv"),
    "flash_attn": ("flash_attention", "fa"),
    "rope_scaling_type": ("rope_scaling",),
    "use_mmap": ("mmap", "no_mmap"),
    "use_mlock": ("mlock",),
    "lora": ("lora_path", "lora_paths", "lora_adapters", "loras"),
    "chat_template": ("chat_format",),
}
"""Our name -> what other programs and libraries call it."""

_OURS: Final = {theirs: ours for ours, names in _ELSEWHERE.items() for theirs in names}


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse unknown names, suggesting the one that another library's name stands for, or else the nearest.

    Args:
        given: the names to check.
        known: the names that there are.
        what: what they name, for the message.

    Raises:
        ConfigurationError: a name is unknown.
    """
    names = list(known)
    for name in given:
        if name not in names:
            raise ConfigurationError(f"unknown {what} {name!r}; {_hint(name, names)}")


def explained(error: ValidationError) -> ConfigurationError:
    """Pydantic's findings, without its links; an error of our own among them in its own words."""
    return ConfigurationError("; ".join(map(_finding, error.errors(include_url=False))))


def _finding(item: ErrorDetails) -> str:
    own = item.get("ctx", {}).get("error")
    if isinstance(own, ConfigurationError):
        return str(own)
    return f"{'.'.join(map(str, item['loc'])) or 'options'}: {item['msg']}, got {item['input']!r}"


def _hint(name: str, names: list[str]) -> str:
    meant = _OURS.get(name)
    near = [meant] if meant in names or meant == "stop" else difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(sorted(names))}"
