"""Tests of `data/`."""
