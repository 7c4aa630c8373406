"""All that a rank loads, for the process that ranks are forked from.

deepspeed loads an optimiser that nobody here uses, and with it torch's compiler, when the engine is built.
"""

import gc
import importlib

for name in ("deepspeed.runtime.zero.muon.muon_optimizer", "executor.trainer.rank"):
    importlib.import_module(name)
# What is loaded stays shared with the ranks: no collection of theirs touches it.
gc.collect()
gc.freeze()
