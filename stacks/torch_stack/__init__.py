"""The PyTorch and Hugging Face stack: one leg, written from `configs/contract/SPEC.md` alone.

A run reads top to bottom in this order: config, examples, render, tokenizer, encode, tokens,
batch, weights, model, loss, update, train; numerics, snapshot, header and trace observe it.
"""
