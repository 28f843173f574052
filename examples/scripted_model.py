"""A chat model with scripted responses, for the examples of agents, offline and without
a key.

The model that comes with this package solves word problems and cannot call tools, so
these examples need another. A script is a function from a conversation to a list of
possible responses; sample i of a step gives the i-th of them. An agent without ReASC
gets the first. With ``--model`` (and ``--base-url``) the examples ask a real model.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from any_chat_model import chat_model
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

Script = Callable[[Sequence[BaseMessage]], Sequence[AIMessage]]
SAMPLE = "reasc:sample:"  # prefix of the tag with the number of a sample


def calls(tool: str, **args: Any) -> AIMessage:
    """Return a response that calls a tool."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": tool, "args": args, "id": f"call-{tool}", "type": "tool_call"}
        ],
    )


class ScriptedModel(BaseChatModel):
    """Gives the responses of its script, with a usage of a token for four characters."""

    script: Script
    model_name: str = "scripted"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools. The script decides which of them are called."""
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tags = run_manager.tags if run_manager else []
        sample = max(
            (int(tag.removeprefix(SAMPLE)) for tag in tags if tag.startswith(SAMPLE)),
            default=0,
        )
        replies = self.script(messages)
        reply = replies[sample % len(replies)]
        asked, said = (
            count_tokens_approximately(messages),
            count_tokens_approximately([reply]),
        )
        told = {
            "id": f"scripted-{len(messages)}-{sample}",
            "usage_metadata": UsageMetadata(
                input_tokens=asked, output_tokens=said, total_tokens=asked + said
            ),
            "response_metadata": {
                "model_name": self.model_name,
                "finish_reason": "stop",
            },
        }
        return ChatResult(
            generations=[ChatGeneration(message=reply.model_copy(update=told))]
        )


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """Return the options that all examples of agents have."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--model",
        help="name of a model that calls tools; default: a scripted one, offline",
    )
    options.add_argument("--base-url", help="of an OpenAI-compatible server")
    return options


def model_for(given: argparse.Namespace, script: Script) -> BaseChatModel:
    """Return the model that the options name, or the scripted one."""
    return (
        chat_model(given.model, given.base_url)
        if given.model
        else ScriptedModel(script=script)
    )


def told(message: BaseMessage) -> str:
    """Format a message for the terminal, with the votes if there was a vote."""
    said = str(message.text)
    if isinstance(message, AIMessage) and message.tool_calls:
        said = ", ".join(
            f"calls {call['name']}{call['args']}" for call in message.tool_calls
        )
    lines = [f"{message.type:>6}  {said}"]
    if account := message.response_metadata.get("reasc"):
        lines.append(
            f"        decided after {account['samples']} of {account['launched']} "
            f"samples: {account['reason']}"
        )
        lines += [
            f"        {weight:6.1f}  {answer}"
            for answer, weight in account["evidence"].items()
        ]
    return "\n".join(lines)
