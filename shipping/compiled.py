"""What is compiled carries the digest of its sources, and is under `stowplan.` in a wheel, as all else (`moved`)."""

import hashlib
import sys
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext

# Builders load this file alone, from wherever they are.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from shipping.moved import HOME


class BuildExt(build_ext):
    """Compiles extension modules of one source and its headers, which lie in one folder."""

    def finalize_options(self) -> None:
        """Name them as their packages are named."""
        super().finalize_options()
        if not self.inplace and not self.editable_mode:
            for extension in self.extensions:
                extension.name = extension._full_name = f"{HOME}.{extension.name}"

    def build_extension(self, ext: Extension) -> None:
        """Compile one; modules say which sources they are of (`SOURCE`)."""
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(map(Path, (*ext.sources, *ext.depends)))))
        ext.define_macros.append(("SOURCE_DIGEST", f'"{digest.hexdigest()}"'))
        super().build_extension(ext)
