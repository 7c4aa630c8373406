"""All that a rank loads, for the process that ranks are forked from."""

import gc
import importlib

import torch

_MODULES = ("executor.trainer.rank", "executor.trainer.deepspeed_engine", "executor.trainer.native.engine")
# What the first optimiser loads, and most of what the first layer that is compiled does, each in seconds.
_LATE = ("torch._dynamo", "torch._dynamo.backends.debugging", "torch._inductor.compile_fx")
for name in _MODULES + _LATE:
    importlib.import_module(name)
# To compile a first time loads more, and makes what all later times use. Forward alone: going back would start what
# does not survive a fork.
torch.compile(torch.nn.Linear(2, 2), backend="aot_eager", fullgraph=True)(torch.ones(1, 2))
torch._dynamo.reset()
# What is loaded stays shared with the ranks: no collection of theirs touches it.
gc.collect()
gc.freeze()
