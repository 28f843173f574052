"""Arguments that type checkers must accept, and those they must refuse: an ignored line without a fault is an error."""

# pyright: reportUnnecessaryTypeIgnoreComment=true
from pathlib import Path

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_openai import ChatOpenAICompatible, RetryPolicy
from pydantic import SecretStr

from langchain_reasc import ASC, Calibration, ChatReASC, Escalation, Measure, Online, ReASCRunnable


def answer(text: str) -> str | None:
    return text.strip() or None


def runnables(model: BaseChatModel, calibration: Calibration, path: Path, name: str) -> AIMessage:
    ReASCRunnable(model=model)
    ReASCRunnable(model=model, calibration=calibration, allow_fingerprint_mismatch=True)
    ReASCRunnable(model=model, calibration=path, max_samples=8, concurrency=8, min_share=0.4)
    ReASCRunnable(model=model, calibration=name, on_missing_confidence="count")
    ReASCRunnable(model=model.bind(stop=["\n"]), calibration="mixture", confidence=Measure("top_k"))
    reasc = ReASCRunnable(model=model, answer=answer, timeout=60, sample_timeout=None)
    ReASCRunnable(model=model, calibration=Online(state=path, audit=0.1), confidence="stated")
    ReASCRunnable(model=model, escalate_to=Escalation(model, within=0.1, prices=((0.15, 0.6), (2.5, 10))))
    ReASCRunnable(model=model, escalate_to=Escalation(name, prices=30))
    ReASCRunnable(model=model, confidence="given")  # type: ignore
    ReASCRunnable(model=model, escalate_to=Escalation(model, 0.1))  # type: ignore
    ReASCRunnable(model, max_samples=8, rule="asc")
    ReASCRunnable(model, rule=ASC())
    ReASCRunnable(model, rule=ASC)  # type: ignore
    ReASCRunnable("openai:gpt-4o-mini")
    ReASCRunnable(model=name)
    ReASCRunnable(calibration="mixture")  # type: ignore
    ReASCRunnable(model, calibration)  # type: ignore
    ReASCRunnable(8)  # type: ignore
    ReASCRunnable(model=model, max_sample=8)  # type: ignore
    ReASCRunnable(model=model, calibration=0.9)  # type: ignore
    ReASCRunnable(model=model, on_missing_confidence="ignore")  # type: ignore
    return (ChatPromptTemplate.from_template("{question}") | reasc).invoke({"question": "How much is 17 + 25?"})


def chat_models(model: BaseChatModel) -> list[BaseChatModel]:
    ChatReASC(model, max_sample=8)  # type: ignore
    ChatReASC(max_samples=8)  # type: ignore
    return [ChatReASC(model), ChatReASC("openai:gpt-4o", answer="auto"), ChatReASC(model=model, temperature=1)]


def local_models(path: Path) -> list[ChatLlamaCpp]:
    ChatLlamaCpp(n_context=4096)  # type: ignore
    ChatLlamaCpp(signals="top_k", n_ctx="4096")  # type: ignore
    ChatLlamaCpp(lora=["one.gguf"]).adapters.items()
    return [
        ChatLlamaCpp(),
        ChatLlamaCpp(model_path="model.gguf", n_ctx=4096, n_gpu_layers=-1, temperature=1, stop=["\n"]),
        ChatLlamaCpp(model_path=path, lora="one.gguf", signals=["top_k"], tensor_split=[1, 2], rate_limiter=None),
        ChatLlamaCpp(lora=[path, "two.gguf"], signals=("top_k",), logit_bias={3: False, 5: -1}),
        ChatLlamaCpp(lora={"one.gguf": 1, "two.gguf": 0.5}, dry_sequence_breakers=["\n"]),
        ChatLlamaCpp(lora={path: 0.5}, kv_overrides={"key": True}),
        ChatLlamaCpp.from_hugging_face("owner/repository", "model.gguf", n_ctx=4096),
    ]


def served_models(url: str, urls: list[str]) -> list[ChatOpenAICompatible]:
    ChatOpenAICompatible(base_url=url)  # type: ignore
    ChatOpenAICompatible(base_url=8000, model="m")  # type: ignore
    return [
        ChatOpenAICompatible(base_url=url, model="m", api_key="key", preset="vllm", top_k=40, max_tokens=100),
        ChatOpenAICompatible(base_url=urls, model="m", api_key=SecretStr("key"), retry=RetryPolicy(attempts=2)),
        ChatOpenAICompatible(preset="ollama", model="m", temperature=1, logprobs=True, default_headers={"x": "y"}),
    ]
