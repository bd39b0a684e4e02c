"""Data sets, templates, tokenizers and golden vectors that every stack reads."""
