"""Cases of S-09, all worked by hand."""

from tests.reference.case import Case, Clause, hand


def _rows(
    name: str, lengths: list[int], rows: list[list[int]], *, limit: int = 10, packing: bool = True
) -> Case:
    given = {"lengths": lengths, "max_length": limit, "packing": packing}
    return hand(name, "rows", given, {"rows": rows})


CLAUSE = Clause(
    clause="S-09",
    note="Exact.",
    cases=[
        _rows("without packing", [3, 3, 3], [[0], [1], [2]], packing=False),
        _rows("exactly full", [4, 6, 1], [[0, 1], [2]]),
        _rows("one too many", [4, 7], [[0], [1]]),
        _rows("an earlier row is never reopened", [6, 9, 4, 1], [[0], [1], [2, 3]]),
        _rows("first-fit would differ", [5, 8, 5, 2], [[0], [1], [2, 3]]),
        _rows("examples as long as a row", [10, 10, 1], [[0], [1], [2]]),
        _rows("single tokens", [1] * 12, [[*range(10)], [10, 11]]),
        _rows("one example", [7], [[0]]),
        _rows("rows of two tokens", [1, 2, 1, 1, 2, 1], [[0], [1], [2, 3], [4], [5]], limit=2),
        _rows("packing off with short examples", [1, 1], [[0], [1]], packing=False),
        _rows("three share a row", [3, 3, 4, 3, 3, 3], [[0, 1, 2], [3, 4, 5]]),
    ],
)
