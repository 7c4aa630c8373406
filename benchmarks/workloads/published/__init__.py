"""Readers of published measurements. The data lie beside the checkout and are not part of the project."""
