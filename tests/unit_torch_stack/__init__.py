"""Tests of the PyTorch stack; its modules are mirrored by name."""
