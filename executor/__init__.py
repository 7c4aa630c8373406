"""Plan -> processes; measured metrics; simulated execution. Training needs the extra `executor`."""
