"""What the service serves was built of the sources that lie beside it: without Node, so that every machine looks."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "api" / "ui"
# What is made or downloaded there; as in `ui/vite.config.ts`.
NOT_SOURCES = {"node_modules", "schema.d.ts"}


def sources_hash(folder: Path) -> str:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    digest = hashlib.sha256()
    for name in sorted(name for name in files if not NOT_SOURCES & set(name.split("/"))):
        digest.update(f"{name}\0".encode() + files[name].read_bytes() + b"\0")
    return digest.hexdigest()


def test_the_page_was_built_of_its_sources() -> None:
    built = (BUILT / "sources.sha256").read_text(encoding="utf-8").strip()
    assert built == sources_hash(ROOT / "ui"), "ui/ has changed since api/ui was built: `make page`, and commit both"


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for page in (BUILT / "index.html", ROOT / "api" / "docs" / "index.html"):
        assert "http" not in page.read_text(encoding="utf-8")
