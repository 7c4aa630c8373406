"""The policy `horizon` beside the others over time: on every trace, under load, and without its parts."""
