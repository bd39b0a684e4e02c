"""Every clause that has golden vectors, in order."""

from tests.reference.case import Clause
from tests.reference.cases import (
    adamw,
    batches,
    clip,
    conversations,
    encode,
    examples,
    hashes,
    loss,
    model,
    order,
    render,
    rows,
    runs,
    schedule,
    statistics,
)

CLAUSES: list[Clause] = [
    conversations.CLAUSE,
    *render.CLAUSES,
    encode.CLAUSE,
    *examples.CLAUSES,
    order.CLAUSE,
    rows.CLAUSE,
    *batches.CLAUSES,
    *model.CLAUSES,
    loss.CLAUSE,
    clip.CLAUSE,
    schedule.CLAUSE,
    adamw.CLAUSE,
    statistics.CLAUSE,
    hashes.CLAUSE,
    *runs.CLAUSES,
]
