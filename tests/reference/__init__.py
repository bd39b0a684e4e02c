"""The third opinion: the contract in float64 NumPy, written from SPEC.md alone."""
