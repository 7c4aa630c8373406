"""Schedulers of others that are connected: what they say becomes events, what is decided becomes changes of theirs."""
