"""Whether several servers serve one model, by what they say of it."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from langchain_reasc.exceptions import ConfigurationError, ServerError
from langchain_reasc_openai.probing.asking import Server
from langchain_reasc_openai.probing.identity import Identity, identify

__all__ = ["require_same_model"]

_REFUSE_OTHERS = ("vllm", "sglang")  # their list of models is complete; Ollama has more names for one model


def require_same_model(servers: Sequence[Server], model: str) -> None:
    """Refuse servers of which one says that it serves another model; one that does not answer says nothing.

    llama-server answers to any name with the model it has, so that its votes would be mixed with the others' unnoticed;
    it tells the size of its weights. vLLM and SGLang list the models they serve. All are asked together, and generate
    nothing.

    Raises:
        ConfigurationError: they do not serve one model.
    """
    with ThreadPoolExecutor(len(servers)) as threads:
        said = dict(zip((server.url for server in servers), threads.map(_identity, servers), strict=True))
    weights = defaultdict(list)
    for url, identity in said.items():
        if identity is None:
            continue
        if identity.preset.name in _REFUSE_OTHERS and identity.models and model not in identity.models:
            raise ConfigurationError(f"{url} serves {', '.join(identity.models[:20])} and not {model!r}")
        if told := _weights(identity, model):
            weights[told].append(url)
    if len(weights) > 1:
        which = "; ".join(f"{' and '.join(urls)}: {told}" for told, urls in weights.items())
        raise ConfigurationError(
            f"the servers have different models behind them ({which}); give base URLs of one model, "
            "or a chat model of its own for each"
        )


def _identity(server: Server) -> Identity | None:
    try:
        return identify(server)
    except ServerError:
        return None


def _weights(identity: Identity, model: str) -> str | None:
    """What is said of the model of that name, or of the only one."""
    only = next(iter(identity.weights.values())) if len(identity.weights) == 1 else None
    return identity.weights.get(model, only)
