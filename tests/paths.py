"""Where things lie, so that no test counts the folders above it."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
# Data sets and papers beside the checkout; tests that need them skip where they are not.
SHARED = ROOT.parent / "shared"
EXAMPLES = ROOT / "api" / "examples"
PRETEND_TRAINER = ROOT / "tests" / "executor" / "pretend_trainer.py"
