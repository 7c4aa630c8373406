"""Small output in the layouts of the tools."""

NCCL = """# nThread 1 nGpus 8 minBytes 1048576 maxBytes 8589934592 step: 64(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid  12345 on     node01 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  12345 on     node01 device  1 [0x43] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    52.31   20.05   35.08      0    51.95   20.18   35.32      0
    67108864      16777216     float     sum      -1    442.5  151.66  265.40      0    443.1  151.45  265.04      0
  8589934592    2147483648     float     sum      -1    33482  256.55  448.97      0    33479  256.58  449.01      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 249.804
"""
IB = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 Number of qps   : 1		Transport type : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 2          5000           0.064732            0.064310            4.019375
 65536      5000             394.12             393.98 		     0.751458
 8388608    5000             394.20             394.18 		     0.005874
---------------------------------------------------------------------------------------
"""


def megatron(times_ms: list[float], batch: int = 64) -> str:
    return "\n".join(
        f" [2024-05-02 10:00:{k:02d}] iteration {k + 1:8d}/  500000 | "
        f"consumed samples: {batch * (k + 1):12d} | "
        f"elapsed time per iteration (ms): {time:.1f} | throughput per GPU (TFLOP/s/GPU): 391.0 | "
        "learning rate: 3.0E-04 | "
        f"global batch size: {batch:5d} | lm loss: 2.1E+00 | number of skipped iterations:   0 |"
        for k, time in enumerate(times_ms)
    )


def nemo(times_s: list[float], batch: int = 64) -> str:
    return "\n".join(
        f"Training epoch 0, iteration {k}/99 | lr: 3e-05 | global_batch_size: {batch} | global_step: {k} | "
        f"reduced_train_loss: 11.03 | train_step_timing in s: {time} | consumed_samples: {batch * (k + 1)}"
        for k, time in enumerate(times_s)
    )


def torchtitan(rates: list[int]) -> str:
    return "\n".join(
        f"[rank{rank}]:[titan] 2024-11-05 10:00:00,000 - root - INFO - step: {10 * k:2d}  loss:  7.5437  "
        f"memory: 47.36GiB(59.84%)  tps: {rate:,}  tflops: 333.7  mfu: 33.74%"
        for k, rate in enumerate(rates)
        for rank in (0, 1)
    )
