"""All that a rank loads, for the process that ranks are forked from; the first optimiser loads what is last."""

import gc
import importlib

_MODULES = ("executor.trainer.rank", "executor.trainer.deepspeed_engine", "executor.trainer.native.engine")
for name in (*_MODULES, "torch._dynamo"):
    importlib.import_module(name)
# What is loaded stays shared with the ranks: no collection of theirs touches it.
gc.collect()
gc.freeze()
