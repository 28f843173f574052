"""A loaded GGUF: its weights, vocabulary and metadata."""

import ctypes
import threading
from collections.abc import Callable, Hashable
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_reasc.exceptions import ModelClosedError, ModelFileError
from langchain_reasc_llama_cpp.native import lora, safe_kernels
from langchain_reasc_llama_cpp.native.bindings import library, log
from langchain_reasc_llama_cpp.native.candidates import Candidates
from langchain_reasc_llama_cpp.native.gguf_file import MetadataValue, read_header
from langchain_reasc_llama_cpp.native.parameters import ModelParameters

__all__ = ["NativeModel"]


class NativeModel:
    """Owns a ``llama_model``. Tokenizing is safe from any thread, also while another thread closes the model.

    Attributes:
        path: the GGUF.
        metadata: the GGUF's scalar and string keys, with their values.
        handle: the ``llama_model *``; None once closed.
        adapters: LoRA adapters loaded with it, each with its scale.
        vocabulary: the ``llama_vocab *``.
        vocabulary_size: V, the number of tokens in the vocabulary.
        suppressed: tokens that the GGUF says must never be drawn.
        quantization: name of the weights' format, such as "F16" or "Q4_K - Medium".
        parameter_count: how many weights it has.
        weight_bytes: size of all its tensors.
        training_context: tokens the model was trained to see.
        on_gpu: whether layers were put on a GPU.
        repacked: whether llama.cpp may have repacked the weights (``use_extra_bufts``).
        is_recurrent: whether its memory is, at least partly, a state that cannot be cut between two tokens.
        adds_bos: whether tokenizing puts the begin-of-sequence token first.
        bos: text of the begin-of-sequence token; empty where there is none.
        eos: text of the end-of-sequence token; empty where there is none.
    """

    def __init__(self, path: Path, parameters: ModelParameters | None = None, *, verbose: bool = False) -> None:
        """Validate and load.

        Args:
            path: the GGUF.
            parameters: how to load it; None: with every default.
            verbose: whether to let llama.cpp print its log while this model lives.

        Raises:
            ModelFileError: the file is missing, not a GGUF, truncated, refused by llama.cpp, or no text decoder; or a
                LoRA adapter is.
            ConfigurationError: the parameters ask for what there is not.
            MissingExtraError: llama-cpp-python is not installed.
            UnsupportedProcessorError: it would end the process on this processor.
        """
        self._llama = library()
        self._lock = threading.Lock()
        self._verbose = verbose
        self.path = path
        header = read_header(path)
        parameters = (parameters or ModelParameters()).fitted(header.metadata)
        self.metadata: dict[str, MetadataValue] = header.metadata | (parameters.kv_overrides or {})
        self.repacked = parameters.use_extra_bufts and safe_kernels.may_repack(self._llama, header)
        parameters = parameters.model_copy(update={"use_extra_bufts": self.repacked})
        if verbose:
            log.speak(True)
        self.handle: Any = None
        self._kept: tuple[Hashable, Any] | None = None
        try:
            self.handle = self._load(parameters)
            if self._llama.llama_model_has_encoder(self.handle) or not self._llama.llama_model_has_decoder(self.handle):
                raise ModelFileError(f"{path} is not a decoder-only language model, so it cannot chat")
            self.adapters = lora.load(self._llama, self.handle, self.metadata, parameters.adapters)
        except BaseException:
            self.close()
            raise
        self.vocabulary = self._llama.llama_model_get_vocab(self.handle)
        self.vocabulary_size: int = self._llama.llama_vocab_n_tokens(self.vocabulary)
        kind = self._llama.llama_model_ftype(self.handle)
        self.quantization: str = (self._llama.llama_ftype_name(kind) or f"type {kind}".encode()).decode()
        self.parameter_count: int = self._llama.llama_model_n_params(self.handle)
        self.weight_bytes: int = self._llama.llama_model_size(self.handle)
        self.training_context: int = self._llama.llama_model_n_ctx_train(self.handle)
        self.on_gpu: bool = parameters.n_gpu_layers != 0 and self._llama.llama_supports_gpu_offload()
        recurrent, hybrid = self._llama.llama_model_is_recurrent, self._llama.llama_model_is_hybrid
        self.is_recurrent: bool = recurrent(self.handle) or hybrid(self.handle)
        self._pieces: dict[int, tuple[bytes, bool]] = {}
        self._written: dict[int, bytes] = {}
        count = ctypes.c_int32()
        suppressed = self._llama.llama_vocab_get_suppress_tokens(self.vocabulary, ctypes.byref(count))
        self.suppressed: tuple[int, ...] = tuple(suppressed[: count.value]) if count.value else ()
        self.adds_bos: bool = self._llama.llama_vocab_get_add_bos(self.vocabulary)
        self.bos = self._special_text(self._llama.llama_vocab_bos(self.vocabulary))
        self.eos = self._special_text(self._llama.llama_vocab_eos(self.vocabulary))

    @property
    def has_tokenizer(self) -> bool:
        """Whether the file holds a vocabulary to tokenize with."""
        return bool(self._llama.llama_vocab_type(self.vocabulary) != self._llama.LLAMA_VOCAB_TYPE_NONE)

    def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        """Token ids of a text; control tokens written out in it are recognised.

        Args:
            text: any text; lone surrogates become U+FFFD.
            add_special: whether to put the begin-of-sequence token first, where the model wants one.

        Raises:
            ModelClosedError: the model was closed.
            ModelFileError: the model has no tokenizer.
        """
        raw = text.encode("utf-8", "replace")
        with self._lock:
            self._check_open()
            if not self.has_tokenizer:
                raise ModelFileError(f"{self.path} has no tokenizer (tokenizer.ggml.model is 'no_vocab')")
            room = len(raw) + 8
            for _ in range(2):
                tokens = (ctypes.c_int32 * room)()
                count: int = self._llama.llama_tokenize(self.vocabulary, raw, len(raw), tokens, room, add_special, True)
                if count >= 0:
                    return tokens[:count]
                room = -count
        raise ModelFileError(f"{self.path}: the tokenizer needs {room:,} tokens for {len(raw):,} bytes of text")

    def piece(self, token: int) -> tuple[bytes, bool]:
        """The token's bytes (none for control tokens), and whether it ends a response. Cached."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._made_piece(token)
        return known

    def pieces(self) -> list[tuple[bytes, bool]]:
        """:meth:`piece` of every token, for those who need them all at once, which are not kept here.

        Raises:
            ModelClosedError: the model was closed.
        """
        with self._lock:
            self._check_open()
            tokens = range(self.vocabulary_size)
            return [self._pieces.get(token) or self._made_piece(token) for token in tokens]

    def show(self, mark: str) -> None:
        """Have the control token that writes exactly this text, if there is one, come out as text."""
        tokens = self.tokenize(mark)
        if len(tokens) == 1 and not self.piece(tokens[0])[1]:
            self._pieces[tokens[0]] = (self.written(tokens[0]), False)

    def written(self, token: int) -> bytes:
        """The token's bytes as a grammar sees them: those of control tokens too. Cached."""
        known = self._written.get(token)
        if known is None:
            known = self._written[token] = self._render(token, special=True)
        return known

    @cached_property
    def candidates(self) -> Candidates:
        """Room for one draw, shared by all sampler chains; for the thread that draws."""
        return Candidates(self.vocabulary_size)

    def kept_sampler(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """A sampler kept to be cloned, for the thread that draws: the last one made, anew if its key was another."""
        if self._kept is None or self._kept[0] != key:
            self._drop_kept()
            self._kept = (key, make())
        return self._kept[1]

    def close(self) -> None:
        """Free the weights. Closing twice does nothing."""
        with self._lock:
            handle, self.handle = self.handle, None
        self._drop_kept()
        if handle is not None:
            self._llama.llama_model_free(handle)
        if self._verbose:
            self._verbose = False
            log.speak(False)

    def _load(self, parameters: ModelParameters) -> Any:
        native_parameters = self._llama.llama_model_default_params()
        kept = parameters.apply(self._llama, native_parameters)
        log.forget()
        handle = self._llama.llama_model_load_from_file(str(self.path).encode(), native_parameters)
        del kept  # llama.cpp has copied what it needs
        if not handle:
            why = log.last_error() or "it does not say why"
            raise ModelFileError(f"llama.cpp cannot load {self.path}: {why}")
        return handle

    def _drop_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._llama.llama_sampler_free(kept[1])

    def _special_text(self, token: int) -> str:
        return self._render(token, special=True).decode("utf-8", "replace") if token >= 0 else ""

    def _made_piece(self, token: int) -> tuple[bytes, bool]:
        ends = bool(self._llama.llama_vocab_is_eog(self.vocabulary, token))
        return b"" if ends else self._render(token, special=False), ends

    def _check_open(self) -> None:
        if self.handle is None:
            raise ModelClosedError(f"the model {self.path.name} is closed; make a new one")

    def _render(self, token: int, *, special: bool) -> bytes:
        room = 32
        while True:
            buffer = ctypes.create_string_buffer(room)
            length: int = self._llama.llama_token_to_piece(self.vocabulary, token, buffer, room, 0, special)
            if length >= 0:
                return buffer.raw[:length]
            room = -length
