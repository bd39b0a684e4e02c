"""Byte-level BPE tokenizers: see README.md."""
