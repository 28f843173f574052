"""The files of ``server/deploy`` say what ``reasc serve`` takes, and agree with each other."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from langchain_reasc_server.serve_options import LimitOptions

from .test_command import process, run

ROOT = Path(__file__).parents[2]
DOCKER, SYSTEMD = (ROOT / "server" / "deploy" / name for name in ("docker", "systemd"))
UNIT = (SYSTEMD / "reasc-serve.service").read_text(encoding="utf-8")
STEPS = [
    step.replace("\\\n", "").split(maxsplit=1)
    for step in re.findall(r"^[A-Z]+ (?:.*\\\n)*.*", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
]
IMAGE: dict[str, Any] = {name: yaml.safe_load(rest) for name, rest in STEPS if name in ("ENTRYPOINT", "EXPOSE")}
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICE = COMPOSE["services"]["reasc-serve"]
CHECK = ("--check", "--preset", "generic", "--model", "tiny")
"""Nothing is asked of an upstream."""


def of_unit(name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    shutil.copy(SYSTEMD / "serve.toml", tmp_path)
    (tmp_path / "keys").write_text("sk-of-a-client\n")
    return tmp_path


def test_the_unit_starts_the_command_with_options_that_it_has(credentials: Path) -> None:
    (credentials / of_unit("StateDirectory")).mkdir()
    line = of_unit("ExecStart").replace("%d", str(credentials)).replace("%S", str(credentials))
    program, command, *options = shlex.split(line)
    assert (Path(program).name, command) == ("reasc", "serve")
    assert "(boxed)" in run(*options, *CHECK)
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert int(of_unit("TimeoutStopSec")) > int(given["--shutdown"])
    assert shlex.split(of_unit("ExecReload"))[1:] == ["-HUP", "$MAINPID"]


@pytest.mark.full
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("there is no systemd-analyze")
    unit = tmp_path / "reasc-serve.service"
    unit.write_text(UNIT.replace(shlex.split(of_unit("ExecStart"))[0], "/bin/true"))
    verified = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    complaints = [line for line in verified.stderr.splitlines() if unit.name in line]
    assert [line for line in complaints if "RefreshOnReload" not in line] == []  # newer than many systemd


def test_the_container_starts_the_command_with_options_that_it_has(credentials: Path) -> None:
    [config] = [volume.split(":") for volume in SERVICE["volumes"] if ".toml" in volume]
    command = [DOCKER / config[0] if one == config[1] else one for one in SERVICE["command"]]
    assert IMAGE["ENTRYPOINT"][:2] == ["reasc", "serve"]
    options = (*IMAGE["ENTRYPOINT"][2:], *command)
    assert "(boxed)" in run(*options, "--keys", credentials / "keys", "--state", credentials / "s.sqlite", *CHECK)


def test_what_the_container_is_told_is_what_compose_gives_it() -> None:
    told = tomllib.loads((DOCKER / "serve.toml").read_text(encoding="utf-8"))
    [name] = SERVICE["secrets"]
    assert told["keys"] == f"/run/secrets/{name}" and name in COMPOSE["secrets"]
    [volume] = [one.split(":") for one in SERVICE["volumes"] if one.split(":")[0] in COMPOSE["volumes"]]
    assert Path(told["state"]).parent == Path(volume[1]) and ["VOLUME", volume[1]] in STEPS
    [upstream] = SERVICE["depends_on"]
    assert [url.split("/")[2].split(":")[0] for url in told["url"]] == [upstream]
    command = COMPOSE["services"][upstream]["command"]
    assert command[command.index("--alias") + 1] == told["model"]
    assert SERVICE["ports"] == [f"127.0.0.1:{IMAGE['EXPOSE']}:{IMAGE['EXPOSE']}"]
    context = (DOCKER / SERVICE["build"]["context"]).resolve()
    assert context == ROOT and (context / SERVICE["build"]["dockerfile"]).exists()


def test_the_image_is_built_of_all_that_the_package_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    made_of = {path.split("/")[0] for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    made_of |= {"pyproject.toml", "README.md", "hatch_build.py", *project["project"]["license-files"]}
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in lines if line.startswith("!")} == made_of | {"server/deploy/docker/healthcheck.py"}
    [extras] = [re.findall(r"'/source\[([\w,]+)\]'", rest) for step, rest in STEPS if step == "RUN"]
    assert {"serve"} <= set(extras[0].split(",")) <= project["project"]["optional-dependencies"].keys()


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the image runs Linux")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_the_container_is_healthy_while_the_server_answers_on_any_port(host: str, tmp_path: Path) -> None:
    [source, installed] = next(rest.split() for step, rest in STEPS if step == "COPY" and "healthcheck" in rest)
    [health] = [rest for step, rest in STEPS if step == "HEALTHCHECK"]
    assert f'CMD ["python", "{installed}"]' in health
    check = [sys.executable, ROOT / source, tmp_path]
    (tmp_path / "net").symlink_to("/proc/net")
    with process("--url", "http://127.0.0.1:9", "--model", "tiny", "--preset", "vllm", "--host", host) as (_, started):
        (tmp_path / str(started.pid)).symlink_to(f"/proc/{started.pid}")  # the container has no other processes
        assert subprocess.run(check).returncode == 0
    assert subprocess.run(check, capture_output=True).returncode != 0


NGINX = (ROOT / "server" / "deploy" / "nginx.conf").read_text(encoding="utf-8")


def test_nginx_keeps_the_metrics_to_this_machine() -> None:
    [(path, answer)] = re.findall(r"location ([^~=\s]+) \{[^\n]*\n\s*(return \d+;)", NGINX)
    assert (path, answer) == ("/metrics", "return 404;")  # of all paths that begin so: the server drops a last slash


def test_nginx_takes_as_large_a_body_as_the_server() -> None:
    [default] = [field.default for field in fields(LimitOptions) if field.name == "max_body"]
    assert f"client_max_body_size {default:.0f}m;" in NGINX and "proxy_buffering off;" in NGINX


def test_commands_in_comments_name_files_that_exist() -> None:
    files = [path for folder in (DOCKER, SYSTEMD) for path in folder.iterdir() if path.suffix != ".txt"]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    named = set(re.findall(r"server/deploy/[\w/.-]+", text)) - {"server/deploy/docker/keys.txt"}
    assert len(named) > 3 and not [path for path in named if not (ROOT / path).exists()]
