"""What mkdocs needs of us (`hooks` in mkdocs.yml): a few steps before and after a build.

- What pages link to outside docs/ is part of the site, too: a page (CHANGELOG) as a page, a picture as it is, a file of
  code as a page with the code. The links lead there. A link to a folder is its words alone.
- `llms.txt` lists the pages for a program, `llms-full.txt` has the text of all of them, and each page's Markdown is beside it.
- Diagrams are Mermaid's text, as tests check it. The repository's host draws them. On the site they are text, since drawing
  them would fetch a script from elsewhere; with MERMAID_JS=/path/of/mermaid.min.js that file is a part of the site and draws.
"""

from __future__ import annotations

import inspect
import os
import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(
    r"(?P<before>!?\[(?P<words>[^\]]*)\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)
CODE = {".py": "python", ".mjs": "javascript", ".toml": "toml", ".yaml": "yaml", ".sh": "sh"}
DRAWN = "assets/mermaid.min.js"


# --- what is outside of docs/ -----------------------------------------------------------------


def outside(page: str, target: str) -> str | None:
    """The path, from the project's folder, of what a page in docs/ links to; None where it stays in docs/."""
    if "://" in target or target.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") or not (ROOT / path).exists() else path


def place_of(path: str) -> str:
    """Where that is on the site; empty for a folder."""
    if (ROOT / path).is_dir():
        return ""
    return f"project/{path}.md" if Path(path).suffix in CODE else f"project/{path}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in what pages link to, and what that links to."""
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for found in LINK.finditer(page.content_string):
            path = outside(source_of(page.src_uri), found["target"])
            place = place_of(path) if path else ""
            if path and place and files.get_file_from_path(place) is None:
                file = taken_in(path, place, config)
                files.append(file)
                if file.is_documentation_page():
                    waiting.append(file)
    if script := os.environ.get("MERMAID_JS"):
        files.append(File.generated(config, DRAWN, content=Path(script).read_bytes()))
    return files


def taken_in(path: str, place: str, config: MkDocsConfig) -> File:
    language = CODE.get(Path(path).suffix)
    if language is None:
        file = File.generated(config, place, abs_src_path=str(ROOT / path))
    else:
        text = (ROOT / path).read_text("utf-8")
        shown = f"# {path}\n\n````{language}\n{text}````\n"
        file = File.generated(config, place, content=shown)
    file.inclusion = InclusionLevel.NOT_IN_NAV
    return file


def source_of(page: str) -> str:
    """Where a page's links start from, seen from docs/."""
    return f"../{page.removeprefix('project/')}" if page.startswith("project/") else page


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead the links to outside of docs/ to where that is now; from there, those that lead back as well."""
    here = page.file.src_uri

    def led(found: re.Match[str]) -> str:
        target = found["target"]
        path = outside(source_of(here), target)
        if path is None and here.startswith("project/") and "://" not in target:
            path = posixpath.normpath(posixpath.join("docs", source_of(here), "..", target))
            place = posixpath.relpath(path, "docs")
        elif path is None:
            return found[0]
        else:
            place = place_of(path)
        if not place or place.startswith("../"):
            return found["words"]
        leads = posixpath.relpath(place, posixpath.dirname(here) or ".")
        return f"{found['before']}{leads}{found['anchor'] or ''})"

    return LINK.sub(led, markdown)


# --- diagrams ---------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have diagrams drawn by a script of the site's own, if there is one."""
    if "MERMAID_JS" in os.environ:
        from pymdownx.superfences import fence_code_format

        fence = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
        config.extra_javascript.append(DRAWN)
    return config


# --- for programs -----------------------------------------------------------------------------

_pages: list[Page] = []


def on_nav(nav: Navigation, **_: Any) -> Navigation:
    """Remember the order of the pages."""
    _pages[:] = nav.pages
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, llms-full.txt, and each page's Markdown."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    full, section = [], None
    for page in _pages:
        text = expanded(page.markdown or "")
        file = site / page.file.src_uri
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        title = page.ancestors[-1].title if page.ancestors else None
        if title != section and title is not None:
            lines += ["", f"## {title}", ""]
            section = title
        lines.append(f"- [{page.title}]({page.file.src_uri}): {first_sentence(text)}")
        full.append(text)
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(full), "utf-8")


def first_sentence(text: str) -> str:
    """What a page says first, below its title."""
    prose = re.sub(r"(?s)<!--.*?-->|```.*?```|(?m:^#[^\n]*$)", "", text)
    paragraph = " ".join(prose.strip().partition("\n\n")[0].split())
    sentence, dot, _ = LINK.sub(r"\g<words>", paragraph).partition(". ")
    return sentence + dot.strip()


def expanded(text: str) -> str:
    """With what a name's docstring says in place of `::: name`."""
    return re.sub(
        r"^::: ([\w.]+)(?:\n {4}.*)*", lambda found: told(found[1]), text, flags=re.MULTILINE
    )


def told(dotted: str) -> str:
    home, _, name = dotted.rpartition(".")
    value = getattr(import_module(home), name)
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    return f"## {name}\n\n```python\n{name}{signature}\n```\n\n{inspect.getdoc(value) or ''}"
