"""Planted faults: what the oracle must catch, one small patch each, and the table they produce."""
