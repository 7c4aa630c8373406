"""A training program as a user has it: torch, DistributedDataParallel, a checkpoint of its own, three lines for us.

own_training.py CHECKPOINT STEPS [STEP]        STEP: before it rank 1 is killed, once
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from stowplan_metrics import report, should_stop


def main(checkpoint: Path, num_steps: int, fault: int | None) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        done = saved["step"]
    parallel = DistributedDataParallel(model)
    for step in range(done + 1, num_steps + 1):
        died = checkpoint.with_name("died")
        if step == fault and rank == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * dist.get_world_size() + rank))
        loss = (parallel(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss=float(loss))
        stopping = torch.tensor(int(should_stop()))
        dist.broadcast(stopping, 0)
        if rank == 0 and (step % 5 == 0 or stopping):
            torch.save({"model": model.state_dict(), "step": step}, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)
        if stopping:
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
    # A thread of torch that still runs while the interpreter goes down aborts the process now and then.
    os._exit(0)
