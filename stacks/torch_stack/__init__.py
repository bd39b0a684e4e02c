"""The PyTorch and Hugging Face stack: one leg, written from `configs/contract/SPEC.md` alone.

A run reads top to bottom in this order: config, examples, render, tokenizer, encode, tokens,
batch, weights, precision, model, loss, update, rounded, train; numerics, taps, snapshot, header,
trace and resources observe it; anchors and replay tie it to another leg; host runs it.
"""
