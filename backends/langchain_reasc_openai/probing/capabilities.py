"""What an OpenAI-compatible server can do, as far as sampling with confidence depends on it."""

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

__all__ = ["Capabilities"]


class Capabilities(BaseModel):
    """What one server supports for one model. None means unknown: it is then tried, and what comes back is read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: str = Field(default="generic", description="Name of the preset that fits: vllm, llama-server, ...")
    version: str | None = Field(default=None, description="What the server calls its version.")
    models: tuple[str, ...] = Field(default=(), description="Names of the models it lists.")
    n: bool | None = Field(default=None, description="Several responses of one request.")
    logprobs: bool | None = Field(default=None, description="Log-probabilities of the generated tokens.")
    top_logprobs: int | None = Field(default=None, ge=0, description="Most alternatives per token that it returns.")
    streamed_logprobs: bool | None = Field(default=None, description="Log-probabilities in streams too.")
    streamed_usage: bool | None = Field(default=None, description="Token counts at the end of a stream.")
    reasoning_logprobs: bool | None = Field(
        default=None, description="Log-probabilities in streams of the tokens of the reasoning too, where there is any."
    )
    stops_when_cut_off: bool | None = Field(
        default=None, description="It stops generating when a stream is closed before its end."
    )
    seed: bool | None = Field(default=None, description="The same seed gives the same response, another one another.")
    samplers: dict[str, str] = Field(
        default_factory=dict, description="Sampling parameters beyond OpenAI's: our name -> the server's."
    )
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="The server's name for the most tokens of a response."
    )
    learned: Literal["preset", "probe"] = Field(default="preset", description="Known from documentation, or by asking.")
    probed_at: AwareDatetime | None = Field(default=None, description="When it was asked.")
    notices: tuple[str, ...] = Field(default=(), description="What is missing, and what that means.")

    def alternatives(self, asked: int | None) -> int | None:
        """How many alternatives to ask for, where a caller wants ``asked``: no more than the server grants."""
        if asked is None or self.top_logprobs is None:
            return asked
        return min(asked, self.top_logprobs)
