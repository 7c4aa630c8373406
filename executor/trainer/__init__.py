"""The worker of a training run: `python -P -m executor.trainer job.json`. Needs torch, deepspeed and safetensors."""
