"""What needs torch and deepspeed; everything in here is skipped where they are not installed."""

import pytest

for _package in ("torch", "deepspeed", "safetensors"):
    pytest.importorskip(_package, reason=f"needs {_package}: pip install -e '.[executor]' in a checkout")
