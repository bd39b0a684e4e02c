"""The reference against outside truth."""
