"""Errors of the store, one sentence each: StoreError, and below it DamagedIndex."""

from __future__ import annotations

from oracle.errors import OracleError


class StoreError(OracleError):
    """The store, or what it kept of a run, cannot be used as it is."""


class DamagedIndex(StoreError):
    """The index is no database any more; the records beside it can build it again."""
