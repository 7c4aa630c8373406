"""Hooks of the documentation: links, formulas, the HTTP page; what a page may not load. `make site` builds it all."""

import json
import re
from types import SimpleNamespace

import pytest
import yaml
from mkdocs.exceptions import PluginError

from docs.tools.site import OUTSIDE, declaration, formula, http_page, linked, on_post_page, type_words
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("source", "text", "wanted"),
    [
        ("docs/slurm.md", "[guide](../README.md#limits)", "[guide](readme.md#limits)"),
        ("docs/slurm.md", "[others](export.md)", "[others](export.md)"),
        ("README.md", "[Slurm](docs/slurm.md#plans-go-out)", "[Slurm](slurm.md#plans-go-out)"),
        ("README.md", "![picture](docs/what-if.svg)", "![picture](what-if.svg)"),
        ("README.md", "[figures](benchmarks/README.md#3d-plans)", "[figures](benchmarks.md#3d-plans)"),
        ("README.md", "[priors](models/priors.toml)", "priors"),
        ("CHANGELOG.md", "[keep](https://keepachangelog.com/)", "[keep](https://keepachangelog.com/)"),
        ("README.md", "[here](#limits)", "[here](#limits)"),
        ("README.md", "```\n[a](models/b.py)\n```\n[a](models/b.py)", "```\n[a](models/b.py)\n```\na"),
    ],
)
def test_links_lead_to_pages(source: str, text: str, wanted: str) -> None:
    assert linked(text, source) == wanted


def test_every_operation_and_schema_is_on_the_page() -> None:
    document = json.loads((ROOT / "api" / "openapi.json").read_text())
    page = http_page(document)
    for path, item in document["paths"].items():
        for method in item:
            assert f"`{method.upper()} {path}`" in page
    anchors = set(re.findall(r"\{ #(\S+) \}", page))
    assert anchors == {f"schema-{name.lower()}" for name in document["components"]["schemas"]}
    assert set(re.findall(r"\(#(schema-[^)]+)\)", page)) <= anchors


def test_types_in_words() -> None:
    assert type_words({"type": "array", "items": {"$ref": "#/components/schemas/Job"}}) == "list of [Job](#schema-job)"
    assert type_words({"anyOf": [{"type": "string"}, {"type": "null"}]}) == "string or null"
    assert type_words({"enum": ["a", "b"]}) == "`a`, `b`"
    assert type_words({"type": "object", "additionalProperties": {"type": "number"}}) == "object of number"
    assert type_words({"const": 1}) == "`1`"
    assert type_words({}) == "any"


def test_formulas_are_drawn_by_the_browser() -> None:
    drawn = formula(r"\sum_j x_j \le 1" + "\n\n" + r"\frac{a}{b}")
    assert drawn.count("<math") == 2
    assert "<mfrac>" in drawn
    assert "\\" not in drawn


def test_declarations_are_those_of_modules() -> None:
    text = declaration("models.allocation.sia.formulation\n")
    assert "one_configuration[i]" in text
    assert "&lt;= 1" in text
    with pytest.raises(PluginError, match=r"models\.nowhere declares nothing"):
        declaration("models.nowhere")


def test_every_policy_with_a_program_is_described() -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    named = {
        folder.name for folder in (ROOT / "models" / "allocation").iterdir() if (folder / "descriptor.py").is_file()
    }
    assert {"sia", "arena", "gavel"} <= named
    sections = {title.lower() for title in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert named | {"arnold", "ahead"} == sections


@pytest.mark.parametrize(
    "text",
    [
        '<script async src="https://cdn.example.org/x.js">',
        '<img alt="" src="//example.org/x.png">',
        '<link rel="stylesheet" href="https://example.org/x.css">',
    ],
)
def test_pages_load_nothing_from_elsewhere(text: str) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    with pytest.raises(PluginError, match=r"index\.md loads from elsewhere"):
        on_post_page(f"<p>{text}</p>", page=page, config=None)  # type: ignore[arg-type]
    kept = '<a href="https://example.org/">x</a><script src="assets/x.js"></script>'
    assert on_post_page(kept, page=page, config=None) == kept  # type: ignore[arg-type]


def test_all_pages_are_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed: set[str] = set()
    for item in yaml.safe_load(menu):
        pages = [item] if isinstance(item, str) else next(iter(item.values()))
        listed |= {page if isinstance(page, str) else next(iter(page.values())) for page in pages}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} | {*OUTSIDE, "http.md"} == listed
