"""Scripted replies over OpenAI's streaming chat API."""

from contextlib import AbstractContextManager

from servers.chat_wire import Chat
from servers.exchange import Answer, Exchange
from servers.fake_server import Served as ChatServer
from servers.fake_server import serving

from .fakes import Script

__all__ = ["ChatServer", "chat_server", "scripted"]


def scripted(script: Script) -> Answer:
    """Answers request i to a question with ``script(question, i)``."""

    async def answer(exchange: Exchange) -> None:
        reply = script(exchange.question, exchange.attempt)
        if reply.error:
            await exchange.refuse(400, str(reply.error))
        else:
            await Chat([*reply.tokens()], reply.logprob)(exchange)

    return answer


def chat_server(script: Script) -> AbstractContextManager[ChatServer]:
    return serving(scripted(script))
