"""Policies replayed on published traces: which of them finishes jobs how soon."""
