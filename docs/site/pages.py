"""The pages of the site (``make docs``): the repository's Markdown files, notebooks,
and a reference from docstrings.

mkdocs calls the functions named ``on_...``. Each page keeps its path in the repository,
so its relative links hold on GitHub and on the site.

A page ``reference/PACKAGE.md`` in the navigation lists every public name of the package.
Each of its classes has a page of its own, and so has each name with a page in the
navigation (``reference/PACKAGE/NAME.md``); the package's page documents the rest. A
module that is one file is one page.
"""

import logging
import re
from pathlib import Path
from typing import Any, Final

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter
from pymdownx.slugs import slugify

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = [ROOT, ROOT / "backends", ROOT / "lab"]
LINK: Final = re.compile(r"\]\(([^)\s#]+)")
INLINE_CODE: Final = re.compile(r"(?<=<code>)[^<]*-[^<]*(?=</code>)")
HYPHENATED: Final = re.compile(r"[^\s&;]*-[^\s&;]*")
SHOWN_BY_BROWSERS: Final = {".svg", ".png", ".html"}

logger = logging.getLogger("mkdocs.reference")


def pages() -> list[Path]:
    """Return the Markdown files and notebooks that are pages of the site."""
    patterns = ("*.md", "backends/*.md", "docs/*.md", "docs/*.ipynb")
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


class Notebook(File):
    """A notebook, shown as a page with its outputs."""

    def is_documentation_page(self) -> bool:
        return True


def on_config(config: MkDocsConfig) -> None:
    """Name headings as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """Return the Markdown of a notebook; mkdocs reads other pages itself."""
    return (
        _text(Path(page.file.abs_src_path)) if isinstance(page.file, Notebook) else None
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark the words with hyphens in code within a line, which browsers would break."""
    return INLINE_CODE.sub(
        lambda code: HYPHENATED.sub(r"<span>\g<0></span>", code[0]), html
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of ``docs/`` by the repository's pages, the files they link to,
    and the reference.
    """
    found = {*pages(), Path(__file__).with_name("site.css")}
    for page in pages():
        text = re.sub(r"```.*?```", "", _text(page), flags=re.DOTALL)
        linked = (
            page.parent / link for link in LINK.findall(text) if "://" not in link
        )
        found |= {path.resolve() for path in linked if path.is_file()}
    kept = [file for file in files if file.src_dir != config.docs_dir]
    kinds = {".ipynb": Notebook}
    own = [
        kinds.get(path.suffix, File)(
            str(path.relative_to(ROOT)), str(ROOT), config.site_dir, True
        )
        for path in sorted(found)
    ]
    for file in own:
        file.dest_uri = _place(file.src_uri)
    return Files([*kept, *own, *reference(config)])


def reference(config: MkDocsConfig) -> list[File]:
    """Return the pages of the packages in the navigation, and of their classes."""
    extensions = griffe.load_extensions(str(Path(__file__).with_name("docstrings.py")))
    loader = griffe.GriffeLoader(
        search_paths=SOURCES, allow_inspection=False, extensions=extensions
    )
    listed = [path for path in _paths(config.nav) if path.startswith("reference/")]
    contents = dict[str, str]()
    places = dict[str, str]()
    for path in listed:
        if Path(path).parent == Path("reference"):
            package = loader.load(Path(path).stem)
            contents |= package_pages(package, listed, places)
    return [
        File.generated(
            config,
            path,
            content=content,
            inclusion=(
                InclusionLevel.INCLUDED if path in listed else InclusionLevel.NOT_IN_NAV
            ),
        )
        for path, content in contents.items()
    ]


def package_pages(
    package: griffe.Module, listed: list[str], places: dict[str, str]
) -> dict[str, str]:
    """Return the path and the Markdown of a package's page, and of its names' pages.

    Args:
        package: the package.
        listed: the pages of the reference in the navigation. Their names come first.
        places: full name of each object -> the public name that documents it. A package
            adds what no package before it has documented.
    """
    pages = dict[str, str]()
    rows, blocks = [], []
    paths = {
        name: f"reference/{package.path}/{name}.md" for name in public_names(package)
    }
    first = [name for path in listed for name in paths if paths[name] == path]
    for name in [*first, *(name for name in paths if name not in first)]:
        place, item = _public_object(package, name)
        anchor = ""
        if item.path not in places:
            places[item.path] = place
            if name in first or (item.is_class and package.is_init_module):
                pages[paths[name]] = _page_of_name(package, name, place)
                # Links to the name on this page still lead to its row.
                anchor = f'<span id="{place}"></span>'
            else:
                blocks += [f"::: {place}", ""]
        rows.append(f"| {anchor}[`{name}`][{places[item.path]}] | {_summary(item)} |")
    head = [
        f"# {package.path.replace('.', '.<wbr>')}",
        "",
        _summary(package),
        "",
        "| | |",
        "|---|---|",
    ]
    pages[f"reference/{package.path}.md"] = "\n".join([*head, *rows, "", *blocks])
    return pages


def _page_of_name(package: griffe.Module, name: str, place: str) -> str:
    lines = [
        "---",
        f"title: {name}",
        "---",
        "",
        f"From [`{package.path}`](../{package.path}.md)",
        "",
        f"::: {place}",
        "    options: {heading_level: 1}",
    ]
    return "\n".join(lines)


def _public_object(package: griffe.Module, name: str) -> tuple[str, griffe.Object]:
    """Return the path that documents a public name, and what it names."""
    item = package[name].final_target if package[name].is_alias else package[name]
    place = f"{package.path}.{name}"
    if item.is_module:  # a function that has the name of a module
        place = package.imports.get(name, f"{place}.{name}")
        item = package.modules_collection[place]
    return place, item


def public_names(package: griffe.Module) -> list[str]:
    """Return the names in a package's ``__all__``, or else those that it imports from
    its modules: classes and functions before constants.
    """
    if package.exports is not None:
        names = list(map(str, package.exports))
    else:
        names = [
            name
            for name, member in package.members.items()
            if (
                member.target_path.startswith(f"{package.path}.")
                if member.is_alias
                else name in (member.exports or ())
            )
        ]
    return sorted(
        names,
        key=lambda name: (
            _public_object(package, name)[1].is_attribute,
            name.lower(),
        ),
    )


def _summary(item: griffe.Object) -> str:
    """Return the first sentence of a docstring."""
    if not item.docstring:
        logger.warning(f"{item.path} is public, but has no docstring")
        return ""
    sentence = re.split(
        r"(?<=\.)(?<! al\.)\s", " ".join(item.docstring.value.split("\n\n")[0].split())
    )[0]
    return re.sub(r"(`+[^`]*`+)|\|", lambda found: found[1] or "\\|", sentence)


def _text(page: Path) -> str:
    """Return the Markdown of a page."""
    if page.suffix == ".ipynb":
        return str(MarkdownExporter().from_filename(str(page))[0])
    return page.read_text(encoding="utf-8")


def _place(path: str) -> str:
    """Return where a file of the repository is on the site."""
    suffix = Path(path).suffix
    if suffix not in {".md", ".ipynb"}:
        return path if suffix in SHOWN_BY_BROWSERS | {".css"} else f"{path}.txt"
    name = (
        path.removeprefix("docs/")
        .removesuffix("README.md")
        .removesuffix(suffix)
        .strip("/")
        .lower()
    )
    return f"{name}/index.html" if name else "index.html"


def _paths(nav: Any) -> list[str]:
    """Return the paths in a navigation."""
    if isinstance(nav, str):
        return [nav]
    return [
        path
        for part in (nav.values() if isinstance(nav, dict) else nav)
        for path in _paths(part)
    ]
