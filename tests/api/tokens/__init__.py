"""Tests of tokens and the audit log."""
