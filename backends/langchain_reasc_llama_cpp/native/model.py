"""A loaded GGUF: its weights, vocabulary and metadata."""

import ctypes
import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from langchain_reasc.exceptions import ModelClosedError, ModelError, ModelFileError
from langchain_reasc_llama_cpp.native.bindings import Candidates, library, log
from langchain_reasc_llama_cpp.native.gguf_file import (
    GGUFHeader,
    MetadataValue,
    read_header,
)
from langchain_reasc_llama_cpp.native.parameters import (
    LoadFields,
    fill_model_params,
    fitted_overrides,
)
from langchain_reasc_llama_cpp.native.safe_kernels import check_loading, may_repack

_TEXT: Final = 8  # GGUF value types
_FLOAT32: Final = 6
_UNKNOWN, _CONTROL, _USER_DEFINED = 1, 8, 16  # llama_token_attr
# what llama_tokenize looks for in a text
_PARSED: Final = _UNKNOWN | _CONTROL | _USER_DEFINED

_logger: Final = logging.getLogger("langchain_reasc.llama_cpp")


class NativeModel:
    """Owns a ``llama_model``. Any thread may tokenize, even while another thread closes
    the model.

    Attributes:
        path: the GGUF.
        metadata: the GGUF's scalar and string keys, with their values.
        handle: the ``llama_model *``; None after closing.
        adapters: the LoRA adapters with their scales.
        vocabulary: the ``llama_vocab *``.
        vocabulary_size: V, the number of tokens in the vocabulary.
        suppressed: tokens that must never be drawn, by the GGUF.
        quantization: name of the weights' format, such as "F16" or "Q4_K - Medium".
        parameter_count: the number of weights.
        weight_bytes: the size of all tensors.
        training_context: the context length in training, in tokens.
        on_gpu: whether layers are on a GPU.
        repacked: whether llama.cpp may have repacked the weights (``use_extra_bufts``).
        is_recurrent: whether its memory includes a recurrent state, which cannot be cut
            between two tokens.
        window: tokens that sliding-window layers attend to, or 0 without such layers.
        adds_bos: whether tokenizing puts the begin-of-sequence token first.
        bos: text of the begin-of-sequence token, or an empty text.
        eos: text of the end-of-sequence token, or an empty text.
    """

    def __init__(self, path: Path, fields: LoadFields | None = None) -> None:
        """Validate and load a GGUF.

        Args:
            path: the GGUF.
            fields: the load options; None for all defaults.

        Raises:
            ModelFileError: the file or a LoRA adapter is missing, not a GGUF, truncated
                or refused by llama.cpp, or the model is not a text decoder.
            ConfigurationError: an option cannot be used with this file or machine.
            MissingExtraError: llama-cpp-python is not installed.
            UnsupportedProcessorError: loading would end the process on this processor.
        """
        llama = self._llama = library()
        fields = fields or LoadFields()
        self._lock = threading.Lock()
        self._verbose = fields.verbose
        self.path = path
        header = read_header(path)
        overrides = fitted_overrides(fields, header.metadata)
        self.metadata: dict[str, MetadataValue] = header.metadata | overrides
        check_loading(llama, header, overrides)
        self.repacked = fields.use_extra_bufts and may_repack(llama, header)
        if self._verbose:
            log.set_verbose(True)
        self.handle: Any = None
        self._kept: tuple[Hashable, Any] | None = None
        try:
            self.handle = self._load(fields, overrides)
            if llama.llama_model_has_encoder(
                self.handle
            ) or not llama.llama_model_has_decoder(self.handle):
                raise ModelFileError(
                    f"{path} is not a decoder-only language model, so it cannot chat"
                )
            self.adapters = _loaded_adapters(
                llama, self.handle, self.metadata, fields.adapters
            )
        except BaseException:
            self.close()
            raise
        vocabulary = self.vocabulary = llama.llama_model_get_vocab(self.handle)
        self.vocabulary_size: int = llama.llama_vocab_n_tokens(vocabulary)
        kind = llama.llama_model_ftype(self.handle)
        self.quantization: str = (
            llama.llama_ftype_name(kind) or f"type {kind}".encode()
        ).decode()
        self.parameter_count: int = llama.llama_model_n_params(self.handle)
        self.weight_bytes: int = llama.llama_model_size(self.handle)
        self.training_context: int = llama.llama_model_n_ctx_train(self.handle)
        self.on_gpu: bool = (
            fields.n_gpu_layers != 0 and llama.llama_supports_gpu_offload()
        )
        if fields.n_gpu_layers and not self.on_gpu:
            _logger.warning(
                "n_gpu_layers=%d, but %s runs on the CPU: llama-cpp-python finds no "
                "GPU, or was not built for one (CMAKE_ARGS=-DGGML_CUDA=on)",
                fields.n_gpu_layers,
                path.name,
            )
        self.is_recurrent: bool = llama.llama_model_is_recurrent(
            self.handle
        ) or llama.llama_model_is_hybrid(self.handle)
        self.window: int = llama.llama_model_n_swa(self.handle)
        self._pieces: dict[int, tuple[bytes, bool]] = {}
        self._written: dict[int, bytes] = {}
        count = ctypes.c_int32()
        suppressed = llama.llama_vocab_get_suppress_tokens(
            vocabulary, ctypes.byref(count)
        )
        self.suppressed: tuple[int, ...] = (
            tuple(suppressed[: count.value]) if count.value else ()
        )
        self.adds_bos: bool = llama.llama_vocab_get_add_bos(vocabulary)
        self.bos = self._special_text(llama.llama_vocab_bos(vocabulary))
        self.eos = self._special_text(llama.llama_vocab_eos(vocabulary))

    @property
    def has_tokenizer(self) -> bool:
        """Whether the file has a vocabulary to tokenize with."""
        return bool(
            self._llama.llama_vocab_type(self.vocabulary)
            != self._llama.LLAMA_VOCAB_TYPE_NONE
        )

    def parsed_texts(self) -> tuple[list[str], list[str]]:
        """Return the texts of control tokens, and of user-defined tokens. This takes
        about 0.1 s for 150,000.
        """
        llama, control, user_defined = self._llama, list[str](), list[str]()
        get_attribute = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int32)(
            ctypes.cast(llama.llama_vocab_get_attr, ctypes.c_void_p).value or 0
        )
        for token in range(self.vocabulary_size):
            kind = get_attribute(self.vocabulary, token) & _PARSED
            if kind:
                text = (
                    llama.llama_vocab_get_text(self.vocabulary, token) or b""
                ).decode("utf-8", "replace")
                if text:
                    (user_defined if kind == _USER_DEFINED else control).append(text)
        return control, user_defined

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """Return the token ids of a text.

        Args:
            text: any text; lone surrogates become U+FFFD.
            add_special: whether to put the begin-of-sequence token first if the model
                wants one.
            parse_special: whether the text of a control token becomes that token. Texts
                of user-defined tokens do either way.

        Raises:
            ModelClosedError: the model was closed.
            ModelFileError: the model has no tokenizer.
        """
        raw = text.encode("utf-8", "replace")
        with self._lock:
            self._check_open()
            if not self.has_tokenizer:
                raise ModelFileError(
                    f"{self.path} has no tokenizer (tokenizer.ggml.model is 'no_vocab')"
                )
            size = len(raw) + 8
            for _ in range(2):
                tokens = (ctypes.c_int32 * size)()
                count: int = self._llama.llama_tokenize(
                    self.vocabulary,
                    raw,
                    len(raw),
                    tokens,
                    size,
                    add_special,
                    parse_special,
                )
                if count >= 0:
                    return tokens[:count]
                size = -count
        raise ModelFileError(
            f"{self.path}: the tokenizer needs {size:,} tokens for {len(raw):,} bytes "
            "of text"
        )

    def piece(self, token: int) -> tuple[bytes, bool]:
        """Return a token's bytes (empty for control tokens), and whether it ends a
        response. Cached.
        """
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._made_piece(token)
        return known

    def pieces(self) -> list[tuple[bytes, bool]]:
        """Return :meth:`piece` of every token, without caching.

        Raises:
            ModelClosedError: the model was closed.
        """
        with self._lock:
            self._check_open()
            tokens = range(self.vocabulary_size)
            return [
                self._pieces.get(token) or self._made_piece(token) for token in tokens
            ]

    def show_as_text(self, mark: str) -> None:
        """Show the control token with exactly this text, if there is one, as text."""
        tokens = self.tokenize(mark)
        if len(tokens) == 1 and not self.piece(tokens[0])[1]:
            self._pieces[tokens[0]] = (self.written(tokens[0]), False)

    def written(self, token: int) -> bytes:
        """Return a token's bytes for a grammar, also for control tokens. Cached."""
        known = self._written.get(token)
        if known is None:
            known = self._written[token] = self._render(token, special=True)
        return known

    @cached_property
    def candidates(self) -> Candidates:
        """The candidates of one draw, shared by all sampler chains. Only the thread
        that draws uses them.
        """
        return Candidates(self.vocabulary_size)

    def kept_sampler(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return a sampler to clone, for the thread that draws: the last one, or a new
        one for another key.
        """
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
            log.set_verbose(False)

    def _load(self, fields: LoadFields, overrides: Mapping[str, MetadataValue]) -> Any:
        params = self._llama.llama_model_default_params()
        alive = fill_model_params(
            self._llama, params, fields, overrides, repack=self.repacked
        )
        log.clear_errors()
        handle = self._llama.llama_model_load_from_file(str(self.path).encode(), params)
        del alive  # llama.cpp has copied what it needs
        if not handle:
            raise ModelFileError(
                f"llama.cpp cannot load {self.path}: "
                f"{log.last_error() or 'it does not say why'}"
            )
        return handle

    def _drop_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._llama.llama_sampler_free(kept[1])

    def _special_text(self, token: int) -> str:
        return (
            self._render(token, special=True).decode("utf-8", "replace")
            if token >= 0
            else ""
        )

    def _made_piece(self, token: int) -> tuple[bytes, bool]:
        ends = bool(self._llama.llama_vocab_is_eog(self.vocabulary, token))
        return b"" if ends else self._render(token, special=False), ends

    def _check_open(self) -> None:
        if self.handle is None:
            raise ModelClosedError(
                f"the model {self.path.name} is closed; make a new one"
            )

    def _render(self, token: int, *, special: bool) -> bytes:
        size = 32
        while True:
            buffer = ctypes.create_string_buffer(size)
            length: int = self._llama.llama_token_to_piece(
                self.vocabulary, token, buffer, size, 0, special
            )
            if length >= 0:
                return buffer.raw[:length]
            size = -length


def _loaded_adapters(
    llama: Any,
    model_handle: Any,
    metadata: Mapping[str, MetadataValue],
    adapters: Mapping[str, float],
) -> list[tuple[Any, float]]:
    """Load LoRA adapters (path -> scale) for a model, which frees them with itself.

    Returns:
        ``llama_adapter_lora *`` and scale of each.

    Raises:
        ModelFileError: a file is missing, damaged, not a LoRA adapter, or one for
            another model.
    """
    loaded = []
    for path, scale in adapters.items():
        _check_adapter(Path(path), str(metadata.get("general.architecture")))
        log.clear_errors()
        adapter = llama.llama_adapter_lora_init(model_handle, str(path).encode())
        if not adapter:
            raise ModelFileError(
                f"llama.cpp cannot load the LoRA adapter {path}: {log.last_error()}"
            )
        if llama.llama_adapter_get_alora_n_invocation_tokens(adapter):
            raise ModelFileError(
                f"{path} is an activated LoRA, which counts only from certain tokens "
                "on; that is not supported"
            )
        loaded.append((adapter, scale))
    return loaded


def attach_adapters(
    llama: Any, context_handle: Any, adapters: Sequence[tuple[Any, float]]
) -> None:
    """Apply a model's LoRA adapters (``NativeModel.adapters``) to a context.

    Raises:
        ModelError: llama.cpp cannot use the adapters.
    """
    used = [(adapter, scale) for adapter, scale in adapters if scale]
    if not used:
        return
    handles = (llama.llama_adapter_lora_p_ctypes * len(used))(
        *(adapter for adapter, _ in used)
    )
    scales = (ctypes.c_float * len(used))(*(scale for _, scale in used))
    log.clear_errors()
    if llama.llama_set_adapters_lora(context_handle, handles, len(used), scales) != 0:
        raise ModelError(f"llama.cpp cannot use the LoRA adapters: {log.last_error()}")


def _check_adapter(path: Path, architecture: str) -> None:
    try:
        header = read_header(path)
    except ModelFileError as error:
        raise ModelFileError(f"LoRA adapter: {error}") from None
    kind, adapter = _text(header, "general.type"), _text(header, "adapter.type")
    if kind != "adapter" or adapter != "lora":
        raise ModelFileError(
            f"{path} is not a LoRA adapter (general.type is {kind!r}, adapter.type "
            f"{adapter!r}); convert it with llama.cpp's convert_lora_to_gguf.py"
        )
    made_for = _text(header, "general.architecture")
    if made_for != architecture:
        raise ModelFileError(
            f"the LoRA adapter {path} was made for a {made_for!r} model, but this is "
            f"{architecture!r}"
        )
    if header.types.get("adapter.lora.alpha", _FLOAT32) != _FLOAT32:
        raise ModelFileError(
            f"{path} is damaged: its adapter.lora.alpha is not a 32-bit float"
        )


def _text(header: GGUFHeader, key: str) -> MetadataValue | None:
    """Return a value if it is a text, or else None, because llama.cpp would abort the
    process on another type.
    """
    return header.metadata[key] if header.types.get(key) == _TEXT else None
