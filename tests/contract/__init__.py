"""Tests of the contract's documents and vectors."""
