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
REFERENCE: Final = [Path(path) for path in NAVIGATION if path.startswith("reference/")]
PACKAGES: Final = [path.stem for path in REFERENCE if path.parent == Path("reference")]


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


def test_the_reference_begins_with_what_users_meet_first() -> None:
    assert [path.stem for path in REFERENCE[:3]] == ["ReASCRunnable", "ChatReASC", "ReASCMiddleware"]
    assert len(REFERENCE) < 30


def inventory(site: Path) -> dict[str, str]:
    """Full name of each object of the reference -> its page."""
    lines = zlib.decompress(site.joinpath("objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    return {line.split()[0]: line.split()[3].partition("#")[0] for line in lines}


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    found = inventory(site).keys()
    for package in PACKAGES:
        names = public(package)
        defined = {name: getattr(getattr(import_module(package), name), "__module__", "") for name in names}
        missing = {name for name in names if not found & {f"{package}.{name}", f"{defined[name]}.{name}"}}
        assert names and not missing, package


@pytest.mark.slow
def test_every_class_of_a_package_has_a_page_of_its_own(site: Path) -> None:
    def full_name(cls: type) -> str:
        return f"{cls.__module__}.{cls.__qualname__}"

    pages = inventory(site)
    packages = [package for package in PACKAGES if hasattr(import_module(package), "__path__")]
    assert len(packages) > 10
    for package in packages:
        values = {name: getattr(import_module(package), name) for name in public(package)}
        classes = {name: value for name, value in values.items() if isinstance(value, type) and value.__name__ == name}
        elsewhere = {name for name, cls in classes.items() if not pages[full_name(cls)].endswith(f"/{name}/")}
        assert classes and not elsewhere, package
    assert pages["langchain_reasc.calibrate"] == "reference/langchain_reasc/calibrate/"


@pytest.mark.slow
def test_the_page_of_a_package_leads_to_its_names(site: Path) -> None:
    text = site.joinpath("reference/langchain_reasc/index.html").read_text(encoding="utf-8")
    page = html5lib.parse(text, namespaceHTMLElements=False)
    [table, *_] = page.iter("tbody")
    first, *others = table.iter("tr")
    links = {link.get("href", "") for link in table.iter("a")}
    assert "ReASCRunnable" in "".join(first.itertext()) and len(others) > 25
    assert {"ReASCRunnable/#langchain_reasc.ReASCRunnable", "#langchain_reasc.decide"} <= links
    anchors = {element.get("id") for element in page.iter()}
    assert {"langchain_reasc.ReASCRunnable", "langchain_reasc.decide"} <= anchors


def options(site: Path, name: str) -> dict[str, str]:
    """Name of each option of a class -> what the reference says of it."""
    text = site.joinpath("reference", *name.split("."), "index.html").read_text(encoding="utf-8")
    page = html5lib.parse(text, namespaceHTMLElements=False)
    parents = {child: parent for parent in page.iter() for child in parent}
    headings = [heading for heading in page.iter("h2") if heading.get("id", "").startswith(f"{name}.")]
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
