"""The notebooks of the documentation, run against a service."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.paths import ROOT

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
# What readers are shown, of each.
SHOWN = {
    "allocation": ("succeeded optimal 8.0", "J2", "/snapshot/jobs/0"),
    "placement": ("<svg", "minipods that the groups", "torchrun"),
    "what-if": ("<svg", "t4-1 drained", "404"),
}


@pytest.fixture(scope="module")
def kernel(url: str) -> Iterator[KernelManager]:
    """A kernel that notebooks share: each begins by making what it uses."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("STOWPLAN_URL", url)
        manager = KernelManager(kernel_name="python3", transport="ipc")
        manager.start_kernel(cwd=str(ROOT))
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_as_they_stand(path: Path, kernel: KernelManager) -> None:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") for cell in notebook.cells), "results are not checked in: they would grow old"
    running = NotebookClient(notebook, km=kernel, timeout=120)
    try:
        running.execute()
    finally:
        assert running.kc is not None
        running.kc.stop_channels()
    shown = "\n".join(str(cell.get("outputs", "")) for cell in notebook.cells)
    assert [words for words in SHOWN[path.stem] if words not in shown] == []
