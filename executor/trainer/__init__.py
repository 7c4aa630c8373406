"""The worker process of a training run: `python -P -m executor.trainer job.json`. Needs torch and deepspeed."""
