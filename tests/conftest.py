"""Property tests draw new examples on every machine but in continuous integration, where a run must be repeatable."""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("repeatable")
