"""Predicted step times beside measured ones."""
