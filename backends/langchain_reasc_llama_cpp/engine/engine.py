"""The engine: one thread that owns a llama.cpp context and decodes for all callers."""

import os
import threading
import weakref
from pathlib import Path
from typing import Final

from langchain_reasc.exceptions import (
    ConfigurationError,
    ModelClosedError,
    ModelError,
    ReASCError,
)
from langchain_reasc_llama_cpp.engine.context import DecodeContext
from langchain_reasc_llama_cpp.engine.decoder import Decoder
from langchain_reasc_llama_cpp.engine.request import GenerationRequest
from langchain_reasc_llama_cpp.engine.threads import Threads, default_threads, usage
from langchain_reasc_llama_cpp.native.model import NativeModel
from langchain_reasc_llama_cpp.native.parameters import LoadFields, check_context

_DEFAULT_CONTEXT: Final = 4096
_DEFAULT_CELLS: Final = 8192


class Engine:
    """A loaded model and the thread that runs it. Any thread may call every method.

    Attributes:
        model: the loaded model. Any thread may tokenize with it.
        n_ctx: the most tokens of prompt and response together, per sequence.
        n_threads: the most CPU threads for decoding.
        context: the context of the thread. Other threads may only read its counters.
        check_usable: raises ModelClosedError if no more requests are accepted.
        cancel: ends a request within one decode step, without waiting for it.
        close: ends all requests with ModelClosedError, and frees the model. Closing
            twice is allowed.
    """

    def __init__(self, path: Path, fields: LoadFields) -> None:
        """Load a model and start its thread.

        Raises:
            ConfigurationError: two options contradict each other.
            ModelFileError: the file cannot be used.
            ModelError: not enough memory for the context.
            MissingExtraError: llama-cpp-python is not installed.
        """
        check_context(fields)
        # loading shows how busy the machine is
        since = None if fields.n_threads else usage()
        self.model = NativeModel(path, fields)
        self.n_ctx = fields.n_ctx or min(self.model.training_context, _DEFAULT_CONTEXT)
        self.n_threads = fields.n_threads or default_threads(self.model.weight_bytes)
        cells = fields.n_cells or min(self.n_ctx * fields.n_parallel, _DEFAULT_CELLS)
        try:
            context = DecodeContext(
                self.model,
                cells=max(cells, self.n_ctx),
                n_sequences=2 * fields.n_parallel
                + 2,  # each live sample may have a prompt of its own
                threads=Threads(self.n_threads, since),
                fields=fields,
            )
        except BaseException:
            self.model.close()
            raise
        self.context: Final = context
        decoder = Decoder(
            self.model,
            context,
            n_parallel=fields.n_parallel,
            cached_prompts=fields.cached_prompts,
            overlapped=self.model.on_gpu,  # a GPU leaves the processor idle
        )
        self._worker = _Worker(self.model, context, decoder)
        self.check_usable: Final = self._worker.check_usable
        self.cancel: Final = self._worker.cancel
        # Also runs at interpreter exit, so that no thread is inside llama.cpp when its
        # library is torn down.
        self.close: Final = weakref.finalize(self, self._worker.close)

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request. Its events are passed to ``request.emit``.

        Raises:
            ConfigurationError: the prompt is empty, or has a token that is not in the
                vocabulary.
            ModelClosedError: the engine is closed, or this process is a fork of the one
                that loaded the model.
        """
        prompt, size = request.prompt, self.model.vocabulary_size
        if not len(prompt):
            raise ConfigurationError(
                "the prompt has no tokens; pass a message with text"
            )
        if prompt.min() < 0 or prompt.max() >= size:
            wrong = prompt[(prompt < 0) | (prompt >= size)][0]
            raise ConfigurationError(
                f"the prompt has the token {wrong}, but the vocabulary ends at "
                f"{size - 1}"
            )
        self._worker.submit(request)


class _Worker:
    """The part that runs in the thread. It has no reference to the engine, so an unused
    engine is closed.
    """

    def __init__(
        self, model: NativeModel, context: DecodeContext, decoder: Decoder
    ) -> None:
        self._model, self._context, self._decoder = model, context, decoder
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._arrivals: list[GenerationRequest] = []
        self._cancelled = self._closing = False
        self._thread = threading.Thread(
            target=self._run, name=f"llama.cpp {model.path.name}", daemon=True
        )
        self._thread.start()

    def check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ModelClosedError(
                f"the model {self._model.path.name} was loaded in process {self._pid} "
                f"and cannot be used in its fork {os.getpid()}; load it again here, or "
                "start processes with the 'spawn' method"
            )
        if self._closing:
            raise self._closed_error()

    def submit(self, request: GenerationRequest) -> None:
        self.check_usable()
        with self._changed:
            if self._closing:
                raise self._closed_error()
            self._arrivals.append(request)
            self._changed.notify()

    def cancel(self, request: GenerationRequest) -> None:
        request.cancelled = True
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._cancelled = True
            self._changed.notify()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # the thread, and the memory's owner, live in the parent
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._wait_for_work()
                    self._decoder.step()
                except Exception as error:
                    failure = error
                    if not isinstance(error, ReASCError):
                        failure = ModelError(
                            f"generating with {self._model.path.name} failed: {error!r}"
                        )
                        failure.__cause__ = error
                    self._decoder.fail(failure)
        finally:
            with self._changed:
                self._closing = True
            try:
                self._collect()
            finally:
                self._decoder.close(self._closed_error())
                self._context.close()
                self._model.close()

    def _wait_for_work(self) -> None:
        """Pass new requests to the decoder, and wait if there is nothing to do."""
        if self._news or not self._decoder.busy:
            with self._changed:
                self._changed.wait_for(lambda: self._news or self._decoder.busy)
            if not self._closing:
                self._collect()

    @property
    def _news(self) -> bool:
        return bool(self._arrivals or self._cancelled or self._closing)

    def _collect(self) -> None:
        with self._changed:
            arrivals, self._arrivals = self._arrivals, []
            cancelled, self._cancelled = self._cancelled, False
        for request in arrivals:
            self._decoder.add_request(request)
        if cancelled:
            self._decoder.drop_cancelled()

    def _closed_error(self) -> ModelClosedError:
        return ModelClosedError(
            f"the model {self._model.path.name} is closed; make a new one"
        )
