"""Forecasts of how long jobs last, on published traces."""
