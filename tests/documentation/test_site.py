"""The site has every page, and its reference every public name with every option."""

import sys
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import html5lib
import pytest
import yaml
from langchain_core.language_models import BaseChatModel
from langchain_reasc_llama_cpp import ChatLlamaCpp

from langchain_reasc import ReASCRunnable

from .check_snippets import ROOT


def paths(nav: Any) -> list[str]:
    """The paths in the navigation."""
    if isinstance(nav, str):
        return [nav]
    return [path for part in (nav.values() if isinstance(nav, dict) else nav) for path in paths(part)]


NAVIGATION: Final = paths(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
PACKAGES: Final = [Path(path).stem for path in NAVIGATION if path.startswith("reference/")]


def public(package: str) -> set[str]:
    """The names that users import from a package."""
    module = import_module(package)
    if hasattr(module, "__all__"):
        return set(module.__all__)
    if hasattr(module, "_LAZY"):
        return {name for names in module._LAZY.values() for name in names.split()}
    below = [name for name in sys.modules if name.startswith(f"{package}.")]
    exported = {name for module in below for name in getattr(sys.modules[module], "__all__", ())}
    return exported & vars(module).keys()


def test_the_navigation_lists_every_page() -> None:
    pages = [path for pattern in ("*.md", "backends/*.md", "docs/*.md", "docs/*.ipynb") for path in ROOT.glob(pattern)]
    listed = [path for path in NAVIGATION if not path.startswith("reference/")]
    assert sorted(listed) == sorted(str(path.relative_to(ROOT)) for path in pages)


def test_the_reference_has_every_package_that_users_import_from() -> None:
    assert {"langchain_reasc", "langchain_reasc_llama_cpp", "langchain_reasc_openai"} < set(PACKAGES)
    laboratory = {path.parent.name for path in (ROOT / "lab" / "langchain_reasc_lab").glob("*/__init__.py")}
    assert {name.partition("langchain_reasc_lab.")[2] for name in PACKAGES} >= laboratory - {"cli", "simulation"}


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    inventory = zlib.decompress(site.joinpath("objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    found = {line.split()[0] for line in inventory.splitlines()}
    for package in PACKAGES:
        names = public(package)
        defined = {name: getattr(getattr(import_module(package), name), "__module__", "") for name in names}
        missing = {name for name in names if not found & {f"{package}.{name}", f"{defined[name]}.{name}"}}
        assert len(names) > 3 and not missing, package


def options(site: Path, name: str) -> dict[str, str]:
    """Name of each option of a class -> what the reference says of it."""
    package = name.partition(".")[0]
    text = site.joinpath(f"reference/{package}/index.html").read_text(encoding="utf-8")
    page = html5lib.parse(text, namespaceHTMLElements=False)
    parents = {child: parent for parent in page.iter() for child in parent}
    headings = [heading for heading in page.iter("h3") if heading.get("id", "").startswith(f"{name}.")]
    return {
        heading.get("id", "").rpartition(".")[2]: " ".join("".join(parents[heading].itertext()).split())
        for heading in headings
    }


@pytest.mark.slow
def test_every_option_has_its_default_and_its_meaning(site: Path) -> None:
    shown = options(site, "langchain_reasc.ReASCRunnable")
    for name, field in ReASCRunnable.model_fields.items():
        if field.description:  # LangChain's own has none
            option = shown[name].replace('"', "'")
            assert " ".join(field.description.split()[:3]).replace("`", "").replace('"', "'") in option, (name, option)
            if isinstance(field.default, str | int | float | None):
                assert f"= {field.default!r}" in option, (name, option)


@pytest.mark.slow
def test_every_option_of_a_local_model_has_its_meaning(site: Path) -> None:
    shown = options(site, "langchain_reasc_llama_cpp.ChatLlamaCpp")
    own = set(ChatLlamaCpp.model_fields) - set(BaseChatModel.model_fields)
    short = {name for name in own if len(shown.get(name, "").partition(f" {name}: ")[2].split()) < 8}
    assert len(own) > 50 and not short, short
    assert "Share | None = 0.95" in shown["top_p"] and "n_parallel: int = 8" in shown["n_parallel"]
