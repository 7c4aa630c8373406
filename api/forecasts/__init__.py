"""Forecasters: trained on histories, kept, and asked how long jobs last."""
