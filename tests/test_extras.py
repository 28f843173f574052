"""Each extra works in an environment that has no other extra."""

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.documentation.check_wheel import EXTRAS, SCHEMAS

PROJECT: Final = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
HIDING: Final = '''
import sys
from importlib.machinery import PathFinder

class OthersHidden(PathFinder):
    """Finds modules, but those of packages that the environment would not have."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = OthersHidden
'''


def requirements_of(package: str, extras: set[str]) -> list[Requirement]:
    """Return what a package requires here with some of its extras."""
    if package == "langchain-reasc":
        listed = [*PROJECT["dependencies"]]
        for extra in extras:
            listed += PROJECT["optional-dependencies"][extra]
        return [Requirement(text) for text in listed]
    try:
        requirements = [Requirement(text) for text in requires(package) or ()]
    except PackageNotFoundError:  # an extra that the tests do without
        return []
    environments = [{"extra": extra} for extra in extras | {""}]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or any(requirement.marker.evaluate(names) for names in environments)
    ]


def installed_with(extra: str) -> set[str]:
    """Return the packages that an environment with one extra has."""
    packages = {"pip", "setuptools"}
    visited: set[tuple[str, frozenset[str]]] = set()
    waiting = [("langchain-reasc", frozenset({extra} - {""}))]
    while waiting:
        package, extras = waiting.pop()
        if (package, extras) in visited:
            continue
        visited.add((package, extras))
        packages.add(package)
        for requirement in requirements_of(package, {*extras}):
            waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return packages


@pytest.fixture(scope="module")
def distributions_of() -> Mapping[str, list[str]]:
    """Return the packages that bring each module here; listing them takes a second."""
    return packages_distributions()


@pytest.mark.full
@pytest.mark.parametrize("extra", sorted({*EXTRAS} - {"data"}))  # `data` is not among what the tests install
def test_each_extra_works_alone(extra: str, distributions_of: Mapping[str, list[str]], tmp_path: Path) -> None:
    packages = installed_with(extra)
    hidden = {
        module
        for module, distributions in distributions_of.items()
        if packages.isdisjoint(canonicalize_name(name) for name in distributions)
    }
    assert "pytest" in hidden
    program = tmp_path / "program.py"
    program.write_text(HIDING.replace("{hidden}", repr(hidden)) + EXTRAS[extra] + SCHEMAS, encoding="utf-8")
    subprocess.run([sys.executable, program], check=True)
