"""Inputs: generators, events, readers of published traces and profiles."""
