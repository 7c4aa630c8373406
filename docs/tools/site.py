"""Hooks of MkDocs: pages from files outside of docs/, the HTTP interface as a page, formulas as MathML.

Pages load nothing from elsewhere: a page that does stops the build.
"""

import ast
import html
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from shipping.links import relinked

ROOT = Path(__file__).resolve().parents[2]
# Page -> file of the repository, where that is not docs/PAGE.
OUTSIDE: Mapping[str, str] = {
    "readme.md": "README.md",
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
HTTP_PAGE = "http.md"
# What a browser fetches by itself.
_LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//'
)
_METHODS = ("get", "put", "post", "delete", "patch")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages whose text is not in docs/."""
    for page, source in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    document = json.loads((ROOT / "api" / "openapi.json").read_text())
    files.append(File.generated(config, HTTP_PAGE, content=http_page(document)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs names them
    """Have links lead to pages."""
    return linked(markdown, OUTSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}"))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 - MkDocs names them
    """Refuse a page that loads something from elsewhere.

    Raises
    ------
    PluginError
        Names the page and what it loads.
    """
    if found := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads from elsewhere: {found.group(0)}")
    return output


def linked(markdown: str, source: str) -> str:
    """Links between files of the repository as links between pages; what is no page stays as text.

    `source`: path of the text in the repository.
    """
    pages = {file: page for page, file in OUTSIDE.items()}

    def as_page(is_picture: bool, text: str, target: str) -> str:
        path, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = pages.get(file, file.removeprefix("docs/") if file.startswith("docs/") else None)
        if page is None:
            return text
        return f"{'!' if is_picture else ''}[{text}]({page}{'#' if anchor else ''}{anchor})"

    return relinked(markdown, as_page)


def formula(source: str, *_: Any, **__: Any) -> str:
    """A block of LaTeX as MathML, which browsers draw by themselves; a line of its own for each line."""
    lines = [line for line in source.splitlines() if line.strip()]
    return "".join(f"<p>{convert(line, display='block')}</p>" for line in lines)


def declaration(source: str, *_: Any, **__: Any) -> str:
    """The docstring of a module that declares a program, as it stands there.

    Raises
    ------
    PluginError
        When there is no such module, or it says nothing.
    """
    module = source.strip()
    path = ROOT / f"{module.replace('.', '/')}.py"
    text = ast.get_docstring(ast.parse(path.read_text())) if path.is_file() else None
    if text is None:
        raise PluginError(f"{module} declares nothing")
    return f"<details><summary><code>{module}</code></summary><pre>{html.escape(text)}</pre></details>"


def http_page(document: Mapping[str, Any]) -> str:
    """The HTTP interface, by tag, as Markdown."""
    return "\n".join(_http_lines(document)) + "\n"


def _http_lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield "# HTTP\n"
    yield (
        "Written from `api/openapi.json`. The service itself serves the document as `/openapi.json`, and with forms to "
        "try it as `/docs`.\n"
    )
    operations: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                operations.setdefault(item[method].get("tags", ["service"])[0], []).append((method, path, item[method]))
    for tag, found in operations.items():
        yield f"## {tag}\n"
        for method, path, operation in found:
            yield from _operation_lines(method, path, operation)
    yield "## Schemas\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _schema_lines(name, schema)


def _operation_lines(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {operation['summary']}\n"
    yield f"`{method.upper()} {path}`\n"
    yield _safe(operation.get("description", "")) + "\n"
    rows = [
        (f"`{one['name']}` ({one['in']})", type_words(one["schema"]), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(("body", type_words(content.get("schema", {})), kind))
    yield from _table(("parameter", "type", ""), rows)
    answers = []
    for status, answer in operation["responses"].items():
        kinds = [
            f"{type_words(content.get('schema', {}))} ({kind})" if content.get("schema") else kind
            for kind, content in answer.get("content", {}).items()
        ]
        answers.append((status, ", ".join(kinds), answer["description"]))
    yield from _table(("status", "answer", ""), answers)


def _schema_lines(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name} {{ #schema-{name.lower()} }}\n"
    yield _safe(schema.get("description", "")) + "\n"
    if "properties" not in schema:
        yield type_words(schema) + "\n"
    needed = schema.get("required", ())
    rows = [
        (f"`{field}`" + (" (required)" if field in needed else ""), type_words(one), one.get("description", ""))
        for field, one in schema.get("properties", {}).items()
    ]
    yield from _table(("field", "type", ""), rows)


def _table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield "| " + " | ".join(names) + " |"
        yield "|" + "---|" * len(names)
        for row in rows:
            yield "| " + " | ".join(_safe(cell).replace("\n", " ").replace("|", "&#124;") for cell in row) + " |"
        yield ""


def type_words(schema: Mapping[str, Any]) -> str:
    """A type in words, with links to schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#schema-{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_words(one) for one in schema[key]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_words(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {type_words(schema['additionalProperties'])}"
    return str(kind)


def _safe(text: str) -> str:
    """Text whose angle brackets are no tags."""
    return text.replace("<", "&lt;")
