"""The base of the chat model: configuration, loading, closing, copying and pickling."""

import json
import secrets
from functools import partial
from pathlib import Path
from typing import Any, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LangSmithParams
from langchain_reasc_backend.bridge import Closing
from pydantic import ConfigDict, PrivateAttr, field_validator

from langchain_reasc.complaints import Checked, check_names
from langchain_reasc.exceptions import ModelFileError
from langchain_reasc_llama_cpp.engine.engine import Engine
from langchain_reasc_llama_cpp.native.model_files import (
    download,
    embedded_model_path,
    file_sha256,
)
from langchain_reasc_llama_cpp.native.parameters import LoadFields, altered_fields
from langchain_reasc_llama_cpp.options import (
    TRACED,
    CallOptions,
    GenerationFields,
    checked_stop,
)
from langchain_reasc_llama_cpp.prompts.chat_template import ChatTemplate
from langchain_reasc_llama_cpp.prompts.marks import TemplateMarks
from langchain_reasc_llama_cpp.sampling.parameters import SEEDS
from langchain_reasc_llama_cpp.sampling.sampler import check_tokens


class LoadedModel(Checked, BaseChatModel, GenerationFields, LoadFields, Closing):
    """A GGUF that is loaded when the object is made, and freed by :meth:`close`,
    ``with``, or the garbage collector.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)

    model_path: str | Path | None = None
    """The GGUF; None takes the small model that comes with the package."""
    stop: list[str] | None = None
    """Strings that end a response, and are not part of it; a call's own ``stop``
    replaces them.
    """
    chat_template: str | None = None
    """A Jinja chat template to use instead of the GGUF's own."""
    streaming: bool = False
    """Generate by streaming in ``invoke`` too, so that callbacks hear of each token."""

    _engine: Engine = PrivateAttr()
    _template: ChatTemplate = PrivateAttr()
    _marks: TemplateMarks = PrivateAttr()
    _adapter_hashes: list[str] = PrivateAttr()
    _base_seed: int = PrivateAttr()

    @field_validator("model_path")
    @classmethod
    def _path_as_text(cls, value: str | Path | None) -> str | None:
        return None if value is None else str(Path(value).expanduser())

    def model_post_init(self, context: Any, /) -> None:
        """Load the model."""
        super().model_post_init(context)
        checked_stop(self.stop)
        self._base_seed = random_seed() if self.seed is None else self.seed
        self._engine = Engine(self.path, self)
        try:
            self._template, self._marks = self._load_template()
            self.call_options().sampling(self._engine.model.metadata)
            used = [
                (Path(path), scale) for path, scale in self.adapters.items() if scale
            ]
            self._adapter_hashes = sorted(
                f"{file_sha256(path)}*{scale:g}" for path, scale in used
            )
        except BaseException:
            self._engine.close()
            raise

    @classmethod
    def from_hugging_face(
        cls, repo_id: str, filename: str, *, revision: str | None = None, **fields: Any
    ) -> Self:
        """Load a GGUF from a Hugging Face repository, and download it if it is not in
        the cache.

        Args:
            repo_id: the repository, such as ``"Qwen/Qwen2.5-0.5B-Instruct-GGUF"``.
            filename: the name of the GGUF in it.
            revision: branch, tag or commit; None for the default branch.
            fields: further fields of the model.

        Raises:
            MissingExtraError: huggingface_hub is not installed.
            ModelFileError: the repository or file does not exist, or the hub cannot be
                reached.
        """
        check_names(fields, cls.model_fields, "option")
        return cls(model_path=download(repo_id, filename, revision=revision), **fields)

    @property
    def path(self) -> Path:
        """The GGUF in use."""
        return (
            embedded_model_path() if self.model_path is None else Path(self.model_path)
        )

    @property
    def model_name(self) -> str:
        """Name of the model file."""
        return self.path.name

    @property
    def engine(self) -> Engine:
        """The engine that decodes, with its native model and its context."""
        return self._engine

    @property
    def context_size(self) -> int:
        """The most tokens of prompt and response together."""
        return self._engine.n_ctx

    @property
    def parameter_count(self) -> int:
        """N, the number of parameters. Generating a token takes about 2N floating-point
        operations.
        """
        return self._engine.model.parameter_count

    def calibration_fingerprint(self, **overrides: Any) -> dict[str, Any]:
        """Return the fingerprint of this model for calibrations.

        Args:
            overrides: options of the calls, such as ``temperature``. Stop strings are
                not included, because they are compared separately for any model.

        Returns:
            ``model`` (file name), ``model_sha256``, ``quantization`` and ``sampling``
            (parameter name -> value). The last one includes options that change the
            model's numbers: KV cache types, rotary embedding, LoRA adapters, overridden
            metadata.
        """
        native, options = (
            self._engine.model,
            {name: given for name, given in overrides.items() if name != "stop"},
        )
        return {
            "model": self.model_name,
            "model_sha256": file_sha256(self.path),
            "quantization": native.quantization,
            "sampling": self.call_options(options).sampling(native.metadata).as_dict()
            | self._alterations(),
        }

    def get_token_ids(self, text: str) -> list[int]:
        """Return the token ids of a text, by the model's own tokenizer, without a
        begin-of-sequence token.
        """
        self._engine.check_usable()
        return self._engine.model.tokenize(text)

    def close(self) -> None:
        """Free the model, also for its copies. Running calls fail with
        ModelClosedError. Closing twice is allowed.
        """
        self._engine.close()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Copy the configuration, and share the loaded model, as ``model_copy`` does."""
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the configuration only; unpickling loads the file again."""
        return partial(
            type(self), **{name: getattr(self, name) for name in self.model_fields_set}
        ), ()

    def call_options(self, overrides: dict[str, Any] | None = None) -> CallOptions:
        """Return the options of a call: the model's own, overridden by those of the
        call.
        """
        given = {
            name: value for name, value in (overrides or {}).items() if name != TRACED
        }
        options = CallOptions.from_call(self, given)
        check_tokens(options.logit_bias or (), self._engine.model)
        return options

    def _load_template(self) -> tuple[ChatTemplate, TemplateMarks]:
        model = self._engine.model
        source = self.chat_template or model.metadata.get("tokenizer.chat_template")
        if not source:
            raise ModelFileError(
                f"{model.path} has no chat template, and may be a base model; pass "
                "chat_template='...' (Jinja)"
            )
        if not model.has_tokenizer:
            raise ModelFileError(
                f"{model.path} has no tokenizer (tokenizer.ggml.model is 'no_vocab'), "
                "so it cannot chat"
            )
        name = (
            f"the chat template of {model.path.name}"
            if self.chat_template is None
            else "the chat template of the option"
        )
        template = ChatTemplate(str(source), bos=model.bos, eos=model.eos, name=name)
        for mark in filter(None, (template.form.opening, template.form.closing)):
            # some models have control tokens for the marks of tool calls
            model.show_as_text(mark)
        control, user_defined = model.parsed_texts()
        return template, TemplateMarks(
            str(source), control=control, user_defined=user_defined
        )

    def _alterations(self) -> dict[str, float | int | str]:
        """Return the options that change the model's numbers."""
        found = altered_fields(self)
        if self._adapter_hashes:
            found["lora"] = " ".join(self._adapter_hashes)
        if self.kv_overrides:
            found["kv_overrides"] = json.dumps(self.kv_overrides, sort_keys=True)
        return found

    @property
    def _llm_type(self) -> str:
        return "llama_cpp"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "model_name": self.model_name,
            "model_path": str(self.path),
            "n_ctx": self._engine.n_ctx,
            "seed": self._base_seed,
            **{
                name: getattr(self, name)
                for name in ("n_parallel", "n_gpu_layers", "max_tokens", "stop")
            },
            **self.call_options().sampling(self._engine.model.metadata).as_dict(),
            **self._alterations(),
        }

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return True, since the configuration holds no secrets."""
        return True

    def _get_ls_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> LangSmithParams:
        options = self.call_options(
            {
                name: value
                for name, value in kwargs.items()
                if name in CallOptions.model_fields
            }
        )
        params = LangSmithParams(
            ls_provider="llama_cpp",
            ls_model_name=self.model_name,
            ls_model_type="chat",
            ls_temperature=options.sampling(self._engine.model.metadata).temperature,
        )
        if options.max_tokens is not None:
            params["ls_max_tokens"] = options.max_tokens
        if stops := self.stop if stop is None else stop:
            params["ls_stop"] = stops
        return params


def random_seed() -> int:
    """Return a random seed."""
    return secrets.randbelow(SEEDS)
