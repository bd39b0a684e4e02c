"""Measured figures and what they are measured against; each module is a command."""
