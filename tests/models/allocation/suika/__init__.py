"""Tests of Suika."""
