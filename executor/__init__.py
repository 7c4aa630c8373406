"""Plan -> processes; measured metrics; simulated execution. Needs the extra `stowplan[executor]`."""
