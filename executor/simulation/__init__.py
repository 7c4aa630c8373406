"""Clusters under a virtual clock: the backend, what is true there, replays of traces and their figures."""
