"""All that a rank loads, for the process that ranks are forked from."""

import gc
import importlib

_MODULES = ("executor.trainer.rank", "executor.trainer.deepspeed_engine", "executor.trainer.native.engine")
# What the first optimiser loads, and most of what the first layer that is compiled does, each in seconds.
_LATE = ("torch._dynamo", "torch._dynamo.backends.debugging", "torch._inductor.compile_fx")
for name in _MODULES + _LATE:
    importlib.import_module(name)
# What is loaded stays shared with the ranks: no collection of theirs touches it.
gc.collect()
gc.freeze()
