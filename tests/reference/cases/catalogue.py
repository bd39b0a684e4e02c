"""Every clause that has golden vectors, in order."""

from tests.reference.case import Clause
from tests.reference.cases import (
    adamw,
    batches,
    clip,
    hashes,
    loss,
    order,
    rows,
    schedule,
    statistics,
)

CLAUSES: list[Clause] = [
    order.CLAUSE,
    rows.CLAUSE,
    batches.CLAUSE,
    loss.CLAUSE,
    clip.CLAUSE,
    schedule.CLAUSE,
    adamw.CLAUSE,
    statistics.CLAUSE,
    hashes.CLAUSE,
]
