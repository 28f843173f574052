"""Any chat model by the path of its class: made as it was told, or refused in a line; and no secret is ever shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from backends.llama_cpp.tiny_gguf import CHATML, write_tiny_model
from lab.pools.synthetic import write_lines
from langchain_reasc_lab.pools import read_pool

from cli.chat_models import Scripted, Unseeded
from cli.test_commands import reasc
from langchain_reasc.cli.models import ModelOptions, read_kwargs
from langchain_reasc.exceptions import ConfigurationError

KEY = "sk-0123456789-secret"
CLASS, UNSEEDED = "cli.chat_models.Scripted", "cli.chat_models.Unseeded"
OF_SIZE = ("--model-class", UNSEEDED, "--model-kwargs", "size=1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    records = ({"question": f"How many are {at} and {5 - at}?", "answer": "5"} for at in range(4))
    return write_lines(tmp_path / "q.jsonl", *records)


def test_arguments_in_every_form(tmp_path: Path) -> None:
    file = tmp_path / "kwargs.json"
    file.write_text('{"a": 1, "b": {"c": [1, 2]}}')
    given = [str(file), '{"a": 2, "d": "e=f"}', "g=0.5", "h=plain text", "i=[1]", "j=k=l"]
    spelled_out = {"g": 0.5, "h": "plain text", "i": [1], "j": "k=l"}
    assert read_kwargs(given) == {"a": 2, "b": {"c": [1, 2]}, "d": "e=f", **spelled_out}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{broken", "--model-kwargs is not valid JSON"),
        ("no-such-file.json", "and no such file can be read"),
        ("list.json", "must be a JSON object of arguments, not a list"),
    ],
)
def test_arguments_that_cannot_be_read(given: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.json").write_text("[1]")
    with pytest.raises(ConfigurationError, match=says):
        read_kwargs([given])


def opened(path: str, *kwargs: str, key: str | None = None, model: str | None = None, **options: Any) -> Any:
    """The model that the options of a command make."""
    with ModelOptions(model, key_variable=key, model_class=path, model_kwargs=list(kwargs)).open(**options) as made:
        return made


def test_options_go_under_the_names_that_the_class_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    options = {"temperature": 0.5, "max_tokens": 7, "seed": None, "default_seed": 3}
    model = opened(CLASS, "usage=false", key="A_KEY", model="m", **options)
    assert isinstance(model, Scripted) and model.scripted_api_key is not None
    assert (model.model_name, model.temperature, model.max_tokens, model.seed) == ("m", 0.5, 7, 3)
    assert model.scripted_api_key.get_secret_value() == KEY and model.usage is False
    assert opened(CLASS, "seed=9", default_seed=3).seed == 9
    assert opened(CLASS, '{"headers": {"Authorization": "env:A_KEY"}}').headers == {"Authorization": KEY}


def test_a_model_of_a_provider_and_a_gguf_take_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    source = ModelOptions("openai:gpt-4o-mini", key_variable="A_KEY", model_kwargs=["max_retries=7"])
    with source.open(temperature=0.5, max_tokens=None, default_seed=3) as model:
        assert (type(model).__name__, model.model_name, model.max_retries) == ("ChatOpenAI", "gpt-4o-mini", 7)
        assert (model.temperature, model.seed, model.openai_api_key.get_secret_value()) == (0.5, 3, KEY)
    gguf = ModelOptions(model_kwargs=['{"n_gpu_layers": 0, "n_ctx": 512}', "n_threads=1"])
    with gguf.open(temperature=0.5) as local:
        assert (local.context_size, local.n_gpu_layers, local.n_threads, local.temperature) == (512, 0, 1, 0.5)


def test_a_model_of_a_provider_is_made_once_with_what_it_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    required = ["azure_endpoint=https://a.example", "api_version=2024-10-21"]
    with ModelOptions("azure_openai:gpt-4o", key_variable="A_KEY", model_kwargs=required).open() as model:
        assert (type(model).__name__, model.model_name) == ("AzureChatOpenAI", "gpt-4o")
        assert model.azure_endpoint == "https://a.example"


def test_a_default_seed_is_no_matter_where_there_is_none() -> None:
    assert isinstance(opened(UNSEEDED, "size=3", default_seed=0, temperature=None), Unseeded)
    with pytest.raises(ConfigurationError, match=r"Unseeded .*--seed .*seed, random_seed"):
        opened(UNSEEDED, "size=3", default_seed=0, seed=1)


@pytest.mark.parametrize(
    ("path", "given", "says"),
    [
        ("Scripted", (), "got 'Scripted'"),
        ("no_such_package.Chat", (), "no module no_such_package"),
        ("cli.chat_models.Scriptd", (), "has no Scriptd; did you mean Scripted?"),
        ("cli.chat_models.not_a_class", (), "is not a chat model"),
        ("langchain_google_vertexai.ChatVertexAI", (), "pip install langchain-google-vertexai"),
        (CLASS, ("temprature=1",), "did you mean 'temperature'?"),
        (CLASS, (f"api_key={KEY}",), "api_key is a secret"),
        (CLASS, (json.dumps({"headers": {"X-API-Key": KEY}}),), "headers.X-API-Key is a secret"),
        (CLASS, ("api_key=env:NO_SUCH_VARIABLE",), "variable NO_SUCH_VARIABLE"),
        (CLASS, ("model=a",), "Scripted's 'model'"),
        ("langchain_core.language_models.BaseChatModel", (), "has no field for --model"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(path: str, given: tuple[str, ...], says: str, data: Path) -> None:
    kwargs = [part for one in given for part in ("--model-kwargs", one)]
    out = data.with_name("p.sqlite")
    refused = reasc("record", data, "--out", out, "--model-class", path, *kwargs, "--model", "b", code=1)
    [line] = refused.stderr.splitlines()
    assert line.startswith("error: ") and says in line and KEY not in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("record", ("--model-class", CLASS, "--url", "http://[::1]:9"), "--url and --model-class exclude each other"),
        ("calibrate", ("--model-kwargs", "a=1"), "unknown option 'a'"),
        ("ask", ("--model-kwargs", '{"n_gpu_layer": -1}'), "did you mean 'n_gpu_layers'?"),
        ("ask", ("--model-kwargs", "n_ctx=many"), "n_ctx: Input should be a valid integer"),
        ("ask", ("--model", "hf:a/b/c.gguf", "--model-kwargs", "n_ctxt=8"), "did you mean 'n_ctx'?"),
        ("ask", ("--url", "http://[::1]:9", "--model-kwargs", "timout=1"), "did you mean 'timeout'?"),
        ("ask", ("--url", "http://[::1]:9", "--model-kwargs", "base_url=x"), "--url and --model-kwargs both set"),
        ("ask", ("--temperature", "1", "--model-kwargs", "temperature=2"), "both set ChatLlamaCpp's 'temperature'"),
        ("ask", ("--url", "http://[::1]:9", "--chat-template", __file__), "--chat-template goes with a GGUF"),
        ("record", ("--model-class", CLASS, "--chat-template", __file__), "--chat-template goes with a GGUF"),
        ("ask", ("--model", "openai:m", "--chat-template", __file__), "--chat-template goes with a GGUF"),
        ("ask", ("--chat-template", "gone.jinja"), "gone.jinja: No such file"),
        ("ask", ("--chat-template", __file__, "--model-kwargs", "chat_template=x"), "--chat-template and --"),
        ("ask", ("--model", "http://gpu1:8000"), "give it as --url"),
        ("ask", ("--model", "gpt-4o-mini"), 'openai:gpt-4o-mini (pip install "langchain-reasc[openai]")'),
        ("ask", ("--model", "anthropix:x"), "'anthropix:x'"),
        ("ask", ("--model", "openai:m", "--model-kwargs", "temprature=1"), "did you mean 'temperature'?"),
        ("ask", ("--model-class", UNSEEDED), "size is missing"),
        ("ask", (*OF_SIZE, "--key-variable", "PATH"), "Unseeded takes no"),
        ("record", (*OF_SIZE, "--temperature", "1"), "--temperature"),
    ],
)
def test_options_that_do_not_go_together(
    command: str, arguments: tuple[str, ...], says: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    given = ("?",) if command == "ask" else (data, "--out", data.with_name("out.json"))
    assert says in reasc(command, *given, *arguments, code=1).stderr


def test_a_class_that_quotes_its_arguments_does_not_show_the_key(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    made_of = ("--model-class", "cli.chat_models.Fragile", "--model-kwargs", "size=env:A_KEY")
    said = reasc("record", data, "--out", data.with_name("p.sqlite"), *made_of, code=1).stderr
    assert "{'size': '***'}" in said


def test_the_key_is_in_no_file_and_no_message(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    out = data.with_name("p.sqlite")
    command = ("record", data, "--out", out, "--samples", 2, "--model-class", CLASS, "--key-variable", "A_KEY")
    shown = reasc(*command, "--limit", 2)
    refused = reasc(*command, "--model-kwargs", "says_its_key=true", code=1)
    assert "no such key: ***" in refused.stderr
    assert KEY not in shown.output + refused.output
    files = [path for path in data.parent.rglob("*") if path.is_file()]
    assert len(files) >= 2 and not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_class_in_the_current_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_model_of_mine.py").write_text("from cli.chat_models import Scripted as Mine\n")
    (tmp_path / "a_broken_module.py").write_text("import no_such_thing_at_all\n")
    (tmp_path / "a_failing_module.py").write_text("1 / 0\n")
    record = ("record", data, "--out", "p.sqlite", "--samples", 1, "--model-class")
    reasc(*record, "a_model_of_mine.Mine")
    assert len(read_pool("p.sqlite").questions) == 4
    assert "no_such_thing_at_all" in reasc(*record, "a_broken_module.Chat", code=1).stderr
    assert "ZeroDivisionError" in reasc(*record, "a_failing_module.Chat", code=1).stderr


def test_a_model_without_logprobs_is_calibrated_on_its_answers(data: Path) -> None:
    options = ("--model-class", CLASS, "--out", data.with_name("c.json"))
    assert "answers are counted" in reasc("calibrate", data, *options).stdout
    options = ("--signal", "token_logprob", *options, "--checkpoint", data.with_name("other.sqlite"))
    assert "token_logprob" in reasc("calibrate", data, *options, code=1).stderr


def test_what_a_preset_sets_beyond_the_fields_goes_into_the_body_of_the_request() -> None:
    pytest.importorskip("langchain_openai")
    kwargs = ("base_url=http://127.0.0.1:9/v1", "api_key=env:PATH", '{"extra_body": {"top_k": 5}}')
    model = opened("langchain_openai.ChatOpenAI", *kwargs, model="m", top_p=0.8, top_k=20, min_p=0.1)
    assert (model.top_p, model.extra_body) == (0.8, {"min_p": 0.1, "top_k": 5})
    with pytest.raises(ConfigurationError, match=r"Scripted .*--top-k"):
        opened(CLASS, top_k=20)


def test_ask_fails_where_all_responses_are_empty() -> None:
    failed = reasc("ask", "?", "--model-class", "cli.chat_models.Silent", code=1)
    assert failed.stdout == "" and "4 of 4 responses" in failed.stderr


@pytest.mark.full
@pytest.mark.parametrize("command", ["ask", "calibrate", "record"])
def test_a_gguf_without_a_chat_template_takes_one_of_a_file(command: str, data: Path) -> None:
    base = write_tiny_model(data.with_name("base.gguf"), chat_template=None)
    template = data.with_name("chat.jinja")
    template.write_text(CHATML)
    given = ("?",) if command == "ask" else (data, "--out", data.with_name(f"{command}.out"))
    options = (command, *given, "--model", base, "--max-tokens", 4)
    assert "--chat-template FILE" in reasc(*options, code=1).stderr
    with ModelOptions(str(base), chat_template=template).open() as model:
        assert model.chat_template == CHATML
    if command == "ask":
        reasc(*options, "--max-samples", 1, "--chat-template", template, code=3)  # random text states no answer
