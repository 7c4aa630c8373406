"""Wheels have our rooms under `stowplan.`, where they cannot be in the way of a user's `models` or `api`.

In the tree, and in editable installs, the rooms stay at the top. Only what goes into a wheel is changed, name by name
where Python's own parser finds it: `from models.plan import Plan` becomes `from stowplan.models.plan import Plan`, and
a string that is the name of a module of ours, or of something in it (`"models.planning:plan_task"`), is changed alike.
What cannot be moved for certain ends the build: a name of ours in a longer string that is code or a command, and
`import models.plan`, which binds `models`. Such code says it by `__name__`, `__package__` or `__module__` instead.
"""

import ast
import re
import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

ROOMS = ("topology", "workloads", "solver", "models", "executor", "api")
HOME = "stowplan"
_ROOM = "|".join(ROOMS)
_NAME = re.compile(rf"(?:{_ROOM})(?:\.\w+)+(?=$|:\w+$)")
_HIDDEN = re.compile(rf"(?:\bimport|\bfrom|-m)\s+(?:{_ROOM})\b")


_KINDS = (ast.Call, ast.Constant, ast.Expr, ast.Import, ast.ImportFrom)
# What takes names of modules and packages.
_BY_NAME = frozenset({"files", "find_spec", "import_module", "run_module"})


class MoveError(Exception):
    """Something names a room in a way that cannot be moved."""


def moved(source: str, where: str, modules: frozenset[str]) -> str:
    """Give the text of a module as it stands in a wheel.

    Parameters
    ----------
    where
        Names it in errors.
    modules
        Names of all modules of ours, by which strings are told that name one.

    Raises
    ------
    MoveError
        When it names a room in a way that cannot be moved.
    """
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, _KINDS)]
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    places: set[tuple[int, int]] = set()
    for node in nodes:
        if id(node) in documentation:
            continue
        if fault := _fault(node, modules):
            raise MoveError(f"{where}:{node.lineno}: {fault}")
        if isinstance(node, ast.ImportFrom) and not node.level and _is_room(node.module or ""):
            places.add((node.lineno, node.col_offset + len("from ")))
        elif isinstance(node, ast.Constant) and _names_module(node.value, modules):
            places.add((node.lineno, node.col_offset + len('"')))
    lines = source.splitlines(keepends=True)
    for line, column in sorted(places, reverse=True):
        # Columns of the parser count bytes.
        text = lines[line - 1].encode()
        if not re.match(rf"(?:{_ROOM})\b", text[column:].decode()):
            raise MoveError(f"{where}:{line}: a name of a room that is written in an unusual way")
        lines[line - 1] = (text[:column] + f"{HOME}.".encode() + text[column:]).decode()
    return "".join(lines)


def _fault(node: ast.AST, modules: frozenset[str]) -> str | None:
    """What names a room here and cannot be moved."""
    match node:
        case ast.Import(names=names) if any(_is_room(name.name) for name in names):
            return "import of a whole module; must be `from ... import ...`"
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=room), *_]):
            if called in _BY_NAME and room in ROOMS:
                return f"{called}({room!r}); must be made of `__name__` or alike"
        case ast.Constant(value=str(text)) if _HIDDEN.search(text) and not _names_module(text, modules):
            return f"{text!r} names a room; must be made of `__name__` or alike"
    return None


def _names_module(value: object, modules: frozenset[str]) -> bool:
    found = _NAME.match(value) if isinstance(value, str) else None
    return found is not None and found[0] in modules


def module_names(root: Path) -> frozenset[str]:
    """Names of all modules and packages of the rooms."""
    files = [file.relative_to(root).with_suffix("") for room in ROOMS for file in (root / room).rglob("*.py")]
    return frozenset(".".join(file.parent.parts if file.name == "__init__" else file.parts) for file in files)


class BuildPy(build_py):
    """Copies modules and data into a wheel, rooms under `stowplan.`; editable installs are left as they are."""

    def get_package_dir(self, package: str) -> str:
        """Where a package is in the tree, under either name."""
        return super().get_package_dir(package.removeprefix(f"{HOME}.") if _is_moved(package) else package)

    def run(self) -> None:
        """Build; what a wheel gets is moved."""
        if not self.editable_mode:
            self.packages = [f"{HOME}.{name}" if _is_room(name) else name for name in self.packages]
            # Data is declared for the names of the tree.
            self.package_data |= {
                f"{HOME}.{name}": globs for name, globs in self.package_data.items() if _is_room(name)
            }
            self._modules = module_names(Path())
            # What an earlier build has left there would be shipped, too.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()

    def build_module(self, module: str, module_file: str, package: str) -> tuple[str, bool]:
        """Copy a module, moved."""
        outfile, copied = super().build_module(module, module_file, package)  # type: ignore[no-untyped-call]  # stubs leave it untyped
        if not self.editable_mode and Path(outfile).suffix == ".py":
            text = Path(module_file).read_text(encoding="utf-8")
            Path(outfile).write_text(moved(text, module_file, self._modules), encoding="utf-8")
        return outfile, copied


def _is_room(name: str) -> bool:
    return name.partition(".")[0] in ROOMS


def _is_moved(package: str) -> bool:
    return package.startswith(f"{HOME}.") and _is_room(package.removeprefix(f"{HOME}."))
