"""The model of a command: a GGUF, the shipped model, servers, a provider's model, or a
LangChain class by its path.

Any of them takes further arguments by names, values, and environment variables with
secrets.
"""

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeGuard, get_args

import typer

from langchain_reasc.cli.console import secret_in
from langchain_reasc.cli.options import KeyVariable, Urls
from langchain_reasc.complaints import findings, nearest
from langchain_reasc.exceptions import (
    ConfigurationError,
    MissingExtraError,
    ModelFileError,
    ReASCError,
    missing_extra,
    pip_install,
)
from langchain_reasc.files import parse_json, read_text

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langchain_reasc.models.named import ModelOrName
    from langchain_reasc.runnable.options import Escalation

_OURS: Final = {
    "langchain_reasc_llama_cpp": ("llama-cpp", "llama-cpp-python"),
    "langchain_reasc_openai": ("openai", "langchain-openai"),
}
"""Our backends -> the extra and the package that they need."""
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("model", "model_name", "model_id", "model_path"),
    "temperature": ("temperature",),
    "max_tokens": (
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "num_predict",
    ),
    "seed": ("seed", "random_seed"),
    "url": ("base_url",),
}
"""Options of the commands -> names of the same options in chat models."""
_PROVIDER: Final = re.compile(r"(?!hf:)[a-z][a-z0-9_-]+:(?!//).+")
"""The name of a model, with its provider."""
_ENVIRONMENT: Final = "env:"
_SECRET: Final = re.compile(
    r"api_?key|(access|secret|private)_?key|(api|access|auth)_?token|secret"
    r"|passw(or)?d|authorization"
)
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|-")


@dataclass
class ModelOptions:
    """The model that is asked."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A GGUF file; hf:OWNER/REPO/FILE, one of the Hub; PROVIDER:NAME, such as "
            "openai:gpt-4o-mini; or with --url or --model-class its name there. "
            r"\[default: the shipped one]",
        ),
    ] = None
    url: Urls = None
    key_variable: KeyVariable = None
    model_class: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.CLASS",
            help="Any LangChain chat model instead, such as ChatOpenAI of langchain_openai.",
        ),
    ] = None
    chat_template: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A Jinja chat template for a GGUF, instead of its own; base models need one.",
        ),
    ] = None
    model_kwargs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Further arguments of the model, such as n_gpu_layers=-1 and n_ctx=8192 "
            "of a GGUF: name=value, a JSON object, or a file with one; repeatable. A "
            "secret is given as env:NAME, the environment variable that holds it.",
        ),
    ] = None

    @property
    def is_shipped(self) -> bool:
        """Whether this is the model that comes with the package."""
        return self.model is None and not self.url and self.model_class is None

    def check(self) -> None:
        """Refuse to ask the shipped model where llama.cpp is not installed.

        Raises:
            MissingExtraError: it is not; the message names a model that can be asked.
        """
        if not self.is_shipped or find_spec("llama_cpp") is not None:
            return
        provider = "--model openai:gpt-4o-mini"
        if find_spec("langchain_openai") is None:
            provider += f" ({pip_install('openai')})"
        raise MissingExtraError(
            "no model was named, and the shipped one needs llama-cpp-python. Name a "
            f"model, as in {provider}, or a server (--url). "
            f"Or install llama.cpp with: {pip_install('llama-cpp')}",
            name="llama_cpp",
        )

    def in_flight(self, concurrency: int | None) -> int:
        """Return how many questions are in flight at once: the given number, or a
        default.
        """
        return concurrency or (8 if self.url else 1)

    def open(
        self, *, default_seed: int | None = None, **options: Any
    ) -> AbstractContextManager[Any]:
        """Load the model into this process, connect to servers, or make an object of
        its class; a context closes it.

        Args:
            default_seed: the seed if ``options`` has none and the model takes one.
            options: options of the chat model; None for the model's default.

        Raises:
            ReASCError: a package or file is missing or refused, or an option is wrong.
        """
        self.check()
        options = {name: value for name, value in options.items() if value is not None}
        if self.chat_template is not None:
            options["chat_template"] = self._template_of_gguf(self.chat_template)
        # A provider's model and one of the Hub are not made by their class.
        make = None
        if self.model_class is not None:
            if self.url:
                raise ConfigurationError(
                    "--url and --model-class exclude each other; a class takes "
                    "base_url=..."
                )
            kind = _chat_model_class(self.model_class)
            if self.model is not None:
                options["model"] = self.model
        elif self.url:
            kind = import_package("langchain_reasc_openai").ChatOpenAICompatible
            options |= {"url": list(self.url), "model": self.model or ""}
        elif _is_of_provider(self.model):
            kind, make = _of_provider(self.model)
        else:
            if self.key_variable is not None:
                raise ConfigurationError(
                    "--key-variable goes with --url, --model-class or a provider's model"
                )
            kind = import_package("langchain_reasc_llama_cpp").ChatLlamaCpp
            if self.model is not None and self.model.startswith("hf:"):
                make = partial(kind.from_hugging_face, *_named_file(self.model))
            elif self.model is not None:
                options["model"] = _file(self.model)
        kwargs = self._arguments(kind, options, default_seed)
        model = _construct(kind, make or kind, kwargs)
        # A model in this process is closed, and so are connections to servers.
        if isinstance(model, AbstractContextManager):
            return model
        return nullcontext(model)

    def _arguments(
        self, kind: Any, options: Mapping[str, Any], default_seed: int | None
    ) -> dict[str, Any]:
        """Return the arguments of a class; ``options`` have the names of the commands."""
        fields = _fields(kind)
        secrets = []
        for name, field in kind.model_fields.items():
            if _is_secret(field.annotation):
                secrets.append(name)
        kwargs = read_kwargs(self.model_kwargs or ())
        _check_names(kind, kwargs, fields)
        for name, value in kwargs.items():
            is_secret = fields.get(name) in secrets
            kwargs[name] = _with_secrets(value, (name,), is_secret)
        _set_options(kind, kwargs, fields, options)
        if default_seed is not None:
            seed = _argument("seed", fields)
            # It may have been set under an alias.
            if seed is not None and fields[seed] not in map(fields.get, kwargs):
                kwargs[seed] = default_seed
        if self.key_variable is not None:
            key = _key_argument(kind, fields, secrets)
            kwargs[key] = secret_in(self.key_variable)
        return kwargs

    def _template_of_gguf(self, path: Path) -> str:
        if self.url or self.model_class is not None or _is_of_provider(self.model):
            raise ConfigurationError(
                "--chat-template goes with a GGUF; a server or a provider has its own "
                "template"
            )
        try:
            return read_text(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                f"cannot read the chat template {path}: {reason}"
            ) from None


def _named_file(name: str) -> tuple[str, ...]:
    """Return the repository and the file of Hugging Face that a name means."""
    match = re.fullmatch(r"hf:([^/]+/[^/]+)/([^/]+(?:/[^/]+)*)", name)
    if match is None:
        raise ConfigurationError(
            "a model on Hugging Face is named hf:OWNER/REPOSITORY/FILE.gguf, got "
            f"{name!r}"
        )
    return match.groups()


def _file(name: str) -> str:
    """Return the path of a GGUF. Refuse what must be the name of another kind of model."""
    # An address would be searched as a file.
    if re.match("https?://", name):
        raise ConfigurationError(
            f"{name} is an address: give it as --url, or --escalate-url of the larger "
            "model"
        )
    if not (name.lower().endswith(".gguf") or Path(name).expanduser().exists()):
        raise ModelFileError(
            f"there is no model file {name}. For a model of a provider write the provider "
            f"before it, as in openai:gpt-4o-mini ({pip_install('openai')}); for a "
            "model of a server give its --url, too"
        )
    return name


def _price_ratio(value: str | None) -> Any:
    """Read a ratio of prices, or four prices."""
    if value is None:
        return None
    try:
        prices = [float(price) for price in str(value).split(",")]
    except ValueError:
        prices = []
    if len(prices) not in (1, 4):
        raise typer.BadParameter(
            "takes a number such as 10, or four prices such as 0.15,0.6,2.5,10; got "
            f"{value!r}"
        )
    if len(prices) == 1:
        return prices[0]
    # Prompt and response of the small model, then of the large one.
    return ((prices[0], prices[1]), (prices[2], prices[3]))


@dataclass
class LargerModelOptions:
    """The larger model that answers if the votes of the model are contested."""

    escalate_to: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A larger model for contested questions, named as for --model.",
        ),
    ] = None
    escalate_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="Its server instead, as with --url; repeatable."
        ),
    ] = None
    escalate_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name at --escalate-url.")
    ] = None
    escalate_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its API key there, as with --key-variable."),
    ] = None
    price_ratio: Annotated[
        Any,  # a number, or prices
        typer.Option(
            metavar="RATIO|PRICES",
            help="How many times as much a token of the larger model costs; or dollars for "
            "a million tokens of prompt and response, first the smaller model's: "
            r"0.15,0.6,2.5,10. \[default: 10]",
            parser=str,
            callback=_price_ratio,
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether there is a larger model."""
        return self.escalate_to is not None or bool(self.escalate_url)

    def escalation(self, model: "ModelOrName") -> "Escalation":
        """Return what ``escalate_to`` is: the larger model, with the options given."""
        from langchain_reasc.runnable.options import Escalation

        # Only commands that learn have the option --within.
        options: dict[str, Any] = {"within": getattr(self, "within", None)}
        if self.price_ratio is not None:
            options["prices"] = self.price_ratio
        return Escalation(model, **options)

    @contextmanager
    def open(
        self, *, seed: int | None = None, **of_servers: Any
    ) -> Iterator[dict[str, Any]]:
        """Open the larger model, and yield the options of a ReASC model with it; none
        without a larger model.

        Args:
            seed: the seed of a model in this process.
            of_servers: options of the chat model of ``escalate_url``.

        Raises:
            ReASCError: a package or file is missing or refused, or an option is wrong.
        """
        self.check()
        if not self.is_given:
            yield {}
            return
        name = self.escalate_to or self.escalate_model
        urls = self.escalate_url
        source = ModelOptions(model=name, url=urls, key_variable=self.escalate_key)
        if urls:
            options = of_servers
        elif _is_of_provider(name):
            options = {}
        else:
            options = {"seed": seed}
        with source.open(**options) as model:
            yield {"escalate_to": self.escalation(model)}

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if self.escalate_to is not None and self.escalate_url:
            raise ConfigurationError(
                "--escalate-to and --escalate-url exclude each other; --escalate-model is "
                "the model's name at --escalate-url"
            )
        of_url = ("escalate_model", "escalate_key")
        for option in (*of_url, "price_ratio", "within"):
            if getattr(self, option, None) is None:
                continue
            needed = "--escalate-to or --escalate-url"
            is_met = self.is_given
            if option in of_url:
                needed = "--escalate-url"
                is_met = bool(self.escalate_url)
            if not is_met:
                flag = option.replace("_", "-")
                raise ConfigurationError(f"--{flag} goes with {needed}")


@dataclass
class LearnedLargerModelOptions(LargerModelOptions):
    """A larger model, for commands that learn when it must be asked."""

    within: Annotated[
        float | None,
        typer.Option(
            help="The promise: on at most this share of questions, an answer contradicts "
            r"one that the larger model repeats. \[default: 0.05]"
        ),
    ] = None


def _is_of_provider(name: str | None) -> TypeGuard[str]:
    # A path may look like a provider's name.
    return (
        name is not None
        and _PROVIDER.fullmatch(name) is not None
        and not Path(name).exists()
    )


def _of_provider(
    name: str,
) -> "tuple[type[BaseChatModel], Callable[..., BaseChatModel]]":
    """Return the class of a provider's model, and what makes the model."""
    from langchain_reasc.models.named import chat_model_class, chat_model_maker

    try:
        return chat_model_class(name), chat_model_maker(name)
    except MissingExtraError:
        raise
    except (ImportError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"no chat model can be made of the name {name!r}: {reason}"
        ) from None


def embedded(name: str) -> Path:
    """Return the path of a shipped file: ``calibration.jsonl``, ``test.jsonl`` or
    ``calibration.json``.
    """
    model = import_package("langchain_reasc_llama_cpp").embedded_model_path()
    path: Path = model.with_name(name)
    return path


def read_kwargs(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a model in ``--model-kwargs``; later ones override
    earlier ones.

    Args:
        arguments: each is JSON (``{"model": "gpt-4o-mini"}``), a file with JSON, or
            ``name=value`` with a value that is JSON or a text.

    Raises:
        ConfigurationError: one is in none of these forms, or is not an object.
    """
    kwargs: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        name = name.strip()
        if argument.lstrip().startswith("{"):
            kwargs |= _object(argument, "--model-kwargs")
        elif equals and name.isidentifier():
            try:
                kwargs[name] = parse_json(value)
            except ValueError:
                kwargs[name] = value
        else:
            try:
                text = read_text(Path(argument), encoding="utf-8-sig")
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    "--model-kwargs takes JSON, a file with JSON, or name=value; got "
                    f"{argument[:60]!r}, and no such file can be read "
                    f"({getattr(error, 'strerror', None) or error})"
                ) from None
            kwargs |= _object(text, argument)
    return kwargs


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ConfigurationError(f"{source} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{source} must be a JSON object of arguments, not a {type(value).__name__}"
        )
    return value


def _chat_model_class(path: str) -> "type[BaseChatModel]":
    from langchain_core.language_models import BaseChatModel

    module_name, _, name = path.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in path.split(".")):
        raise ConfigurationError(
            "--model-class takes package.Class, such as langchain_openai.ChatOpenAI; got "
            f"{path!r}"
        )
    # The current folder, as for `python -m`, but behind everything that is installed.
    if "" not in sys.path:
        sys.path.append("")
    module = import_package(module_name)
    kind = getattr(module, name, None)
    if kind is None:
        near = nearest(name, [*getattr(module, "__all__", ()), *dir(module)])
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigurationError(f"{module_name} has no {name}{hint}")
    if not (isinstance(kind, type) and issubclass(kind, BaseChatModel)):
        hint = "" if isinstance(kind, type) else f", but a {type(kind).__name__}"
        raise ConfigurationError(
            f"{path} is not a chat model (a subclass of langchain_core's "
            f"BaseChatModel){hint}"
        )
    return kind


def _fields(kind: "type[BaseChatModel]") -> dict[str, str]:
    """Return the class's fields by the names of its arguments."""
    fields = {}
    for name, field in kind.model_fields.items():
        if field.alias:
            fields[field.alias] = name
    return fields | {name: name for name in kind.model_fields}


def _is_secret(annotation: Any) -> bool:
    from pydantic import SecretStr

    return annotation is SecretStr or any(map(_is_secret, get_args(annotation)))


def _check_names(
    kind: "type[BaseChatModel]", names: Iterable[str], fields: Mapping[str, str]
) -> None:
    """Refuse arguments that the class does not know, because most classes ignore them."""
    from langchain_core.language_models import BaseChatModel

    inherited = BaseChatModel.mro()
    # A class with an ``__init__`` of its own may take other names than its fields.
    own_bases = [base for base in kind.mro() if base not in inherited]
    has_own_init = any("__init__" in vars(base) for base in own_bases)
    if kind.model_config.get("extra") == "allow" or has_own_init:
        return
    for name in names:
        if name in fields:
            continue
        near = nearest(name, fields)
        hint = ""
        if near:
            hint = f"; did you mean {near!r}?"
        elif "model_kwargs" in fields:
            hint = (
                '; pass options that only the provider knows in "model_kwargs": '
                f"{{{json.dumps(name)}: ...}}"
            )
        raise ConfigurationError(f"{kind.__name__} has no argument {name!r}{hint}")


def _with_secrets(value: Any, where: tuple[str, ...], is_secret: bool) -> Any:
    """Replace each ``env:NAME`` in a value by the environment variable's value. Refuse
    a secret that is spelled out.

    ``where`` has the names that lead to the value. ``is_secret`` says whether the class
    declares the argument as a secret.
    """
    if isinstance(value, Mapping):
        return {
            name: _with_secrets(inner, (*where, str(name)), is_secret)
            for name, inner in value.items()
        }
    # The places in a list have no names.
    if isinstance(value, list):
        return [_with_secrets(inner, where, is_secret) for inner in value]
    if not isinstance(value, str) or not value:
        return value
    if value.startswith(_ENVIRONMENT):
        return secret_in(value.removeprefix(_ENVIRONMENT)).get_secret_value()
    if is_secret or _SECRET.search(_CAMEL.sub("_", where[-1]).lower()):
        raise ConfigurationError(
            f"{'.'.join(where)} is a secret, and a command line would show it to others: "
            'put it into an environment variable, and give "env:NAME"'
        )
    return value


def _argument(option: str, fields: Mapping[str, str]) -> str | None:
    """Return the class's name for an option of the commands."""
    for name in _FIELDS.get(option, (option,)):
        if name in fields:
            return name
    return None


def _set_options(
    kind: type,
    kwargs: dict[str, Any],
    fields: Mapping[str, str],
    options: Mapping[str, Any],
) -> None:
    """Add options of the commands to a class's arguments, under the class's names."""
    set_fields = set(map(fields.get, kwargs))
    for option, value in options.items():
        flag = f"--{option.replace('_', '-')}"
        name = _argument(option, fields)
        # A preset sets options that the class may not know, such as top_k.
        if name is None and option not in _FIELDS and "extra_body" in fields:
            kwargs["extra_body"] = {option: value, **(kwargs.get("extra_body") or {})}
        elif name is None:
            names = ", ".join(_FIELDS.get(option, (option,)))
            raise ConfigurationError(
                f"{kind.__name__} has no field for {flag} (looked for {names}); leave it "
                "out, or give the class's own argument in --model-kwargs"
            )
        elif fields[name] in set_fields:
            raise ConfigurationError(
                f"{flag} and --model-kwargs both set {kind.__name__}'s {name!r}; give only "
                "one"
            )
        else:
            kwargs[name] = value


def _key_argument(kind: type, fields: Mapping[str, str], secrets: Sequence[str]) -> str:
    """Return the name of the argument for the API key."""
    # Most classes take this name, also as an alias of their own.
    if "api_key" in fields:
        return "api_key"
    if len(secrets) == 1:
        return secrets[0]
    reason = "takes no API key by any known name"
    if secrets:
        reason = f"has several secrets ({', '.join(secrets)})"
    raise ConfigurationError(
        f"{kind.__name__} {reason}; give it in --model-kwargs, as name=env:NAME"
    )


def _construct(
    kind: "type[BaseChatModel]",
    make: "Callable[..., BaseChatModel]",
    kwargs: Mapping[str, Any],
) -> "BaseChatModel":
    from pydantic import ValidationError

    try:
        return make(**kwargs)
    except ReASCError:
        raise
    except ValidationError as error:
        # A secret may be among the values.
        reason = "; ".join(findings(error, values=False))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    raise ConfigurationError(f"{kind.__name__} refuses these arguments: {reason}")


def import_package(name: str) -> Any:
    """Import a backend, or the module of a chat model, which may be in the current
    folder.

    Raises:
        MissingExtraError: it is a backend, and a package that it needs is not
            installed.
        ConfigurationError: the module does not exist, or its import fails.
    """
    from langchain_reasc.models.integrations import KNOWN

    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ReASCError:
        raise
    except ModuleNotFoundError as error:
        if package in _OURS:
            raise missing_extra(*_OURS[package]) from None
        # Advise pip only for a package that is known to exist.
        is_known = any(path.startswith(f"{package}.") for path in KNOWN)
        if error.name not in (package, name):
            reason = f"{name} needs the module {error.name}, which is not installed"
        elif error.name == package and is_known:
            reason = (
                f"{package} is not installed. Install it with: pip install "
                f"{package.replace('_', '-')}"
            )
        else:
            reason = (
                f"there is no module {error.name}, neither installed for "
                f"{sys.executable} nor in this folder"
            )
        raise ConfigurationError(reason) from None
    except Exception as error:
        raise ConfigurationError(
            f"{name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
