"""Tests of gang."""
