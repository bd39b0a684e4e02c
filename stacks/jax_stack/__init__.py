"""The JAX stack: fine-tuning with Flax and Optax, written from configs/contract/SPEC.md alone."""
