"""A chat model that commands are given by the path of its class: it answers by the question and the seed alone."""

import random
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Guesser(BaseChatModel):
    """More often right than wrong, and surer where it is."""

    model_name: str = "guesser"
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None

    @property
    def _llm_type(self) -> str:
        return "guesser"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_model_name": self.model_name}

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        question, seed = str(messages[-1].content), kwargs.get("seed", self.seed)
        rng = random.Random(f"{question} {seed}")
        right = rng.random() < 0.7
        signals = {
            "token_logprob": [round(rng.gauss(-0.3 if right else -1.0, 0.2), 4) for _ in range(6)],
            "self_certainty": [round(rng.gauss(9.0 if right else 8.5, 0.9), 4) for _ in range(6)],
        }
        metadata = {
            "token_signals": signals,
            "token_signals_info": {"vocabulary_size": 100, "top_k": 20},
            "finish_reason": "stop",
        }
        text = f"so \\boxed{{{7 if right else rng.choice([5, 6])}}}"
        usage = {"input_tokens": 9, "output_tokens": 6, "total_tokens": 15}
        message = AIMessage(content=text, response_metadata=metadata, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])
