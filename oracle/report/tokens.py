"""The tokens of one example in both legs, aligned, as cells: positions, masks, equal or different.

Ordinary tokens have no name here unless `reveal` is set; control tokens (`facts.special_ids`) do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oracle.report import vocabulary
from oracle.report.words import visible
from oracle.tokendiff import codepoints, diff
from oracle.trace import Trace

CONTEXT_TOKENS = 6
CONTEXT_CHARACTERS = 24
FEWEST_EQUAL = 4  # characters that stand between two differences as a piece of their own
MAX_CELLS = 400
SPACES = {" ": "·", "\n": "⏎", "\t": "→", "\r": "␍"}


@dataclass(frozen=True, kw_only=True)
class Token:
    """One token as it may be shown: of an ordinary one `name` and `id` only with reveal."""

    position: int
    target: bool
    name: str | None
    control: bool
    id: int | None

    @property
    def role(self) -> str:
        """`target` when the loss counts it, else `ignored`."""
        return "target" if self.target else "ignored"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An aligned pair, either side may be missing; or a fold of `num_folded` equal pairs."""

    a: Token | None = None
    b: Token | None = None
    same_token: bool = True
    same_mask: bool = True
    num_folded: int = 0

    @property
    def same(self) -> bool:
        """Whether both legs have this token, with this mask."""
        return self.same_token and self.same_mask


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A range of characters: `op`, [start, end) in either leg, texts only with reveal."""

    op: str
    a: tuple[int, int]
    b: tuple[int, int]
    text_a: str | None = None
    text_b: str | None = None


@dataclass(frozen=True, kw_only=True)
class Example:
    """One example in both legs. `num_different` counts cells that differ, before folding."""

    split: str
    id: str
    num_a: int
    num_b: int
    num_different: int
    num_hidden: int
    cells: tuple[Cell, ...]
    pieces: tuple[Piece, ...]
    characters: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the ids of one leg are called: control tokens, and with reveal every token."""

    control: Mapping[int, str]
    ordinary: Mapping[int, str]
    reveal: bool

    @classmethod
    def of(cls, trace: Trace, *, reveal: bool) -> Names:
        """Names from the trace's facts; those of ordinary tokens are not even read unrevealed."""
        control = {id: name for name, id in trace.header["facts"]["special_ids"].items()}
        ordinary = vocabulary.names(trace) if reveal else {}
        return cls(control=control, ordinary=ordinary, reveal=reveal)

    def name(self, id: int) -> str | None:
        """Return the name of an id as it may be shown, white space made visible."""
        name = self.control.get(id) or self.ordinary.get(id)
        return None if name is None else spaced(name)


def example(
    names: tuple[Names, Names],
    rows: tuple[Mapping[str, Any], Mapping[str, Any]],
    *,
    max_cells: int = MAX_CELLS,
) -> Example:
    """Align one example, given its whole rows (`oracle.align.example_rows`) in both legs."""
    reveal = all(leg.reveal for leg in names)
    sides = [_tokens(row, leg) for row, leg in zip(rows, names, strict=True)]
    cells = list(_cells(sides, [row["ids"] for row in rows]))
    folded = _fold(cells)
    texts = [row["text"] for row in rows]
    return Example(
        split=rows[0]["split"],
        id=visible(rows[0]["id"]),
        num_a=len(sides[0]),
        num_b=len(sides[1]),
        num_different=sum(not cell.same for cell in cells),
        num_hidden=max(0, len(folded) - max_cells),
        cells=tuple(folded[:max_cells]),
        pieces=tuple(_pieces(texts, reveal)) if texts[0] != texts[1] else (),
        characters=(len(texts[0]), len(texts[1])),
    )


def spaced(text: str) -> str:
    """Return `text` with white space made visible, on one line."""
    return visible("".join(SPACES.get(c, c) for c in text))


def _tokens(row: Mapping[str, Any], names: Names) -> list[Token]:
    return [
        Token(
            position=position,
            target=bool(target),
            name=names.name(id),
            control=id in names.control,
            id=id if names.reveal else None,
        )
        for position, (id, target) in enumerate(
            zip(row["ids"].tolist(), row["mask"].tolist(), strict=True)
        )
    ]


def _cells(sides: list[list[Token]], ids: list[Any]) -> Iterator[Cell]:
    left, right = sides
    for span in diff(*ids):
        (i, j), (k, l) = span["a"], span["b"]
        for offset in range(max(j - i, l - k)):
            a = left[i + offset] if i + offset < j else None
            b = right[k + offset] if k + offset < l else None
            same_mask = a is not None and b is not None and a.target == b.target
            yield Cell(a=a, b=b, same_token=span["op"] == "equal", same_mask=same_mask)


def _fold(cells: Sequence[Cell]) -> list[Cell]:
    """Replace long runs of equal cells, all but the context of a difference, by folds."""
    shown = [False] * len(cells)
    for place, cell in enumerate(cells):
        if not cell.same:
            first = max(0, place - CONTEXT_TOKENS)
            last = min(len(cells), place + CONTEXT_TOKENS + 1)
            shown[first:last] = [True] * (last - first)
    folded: list[Cell] = []
    run = 0
    for keep, cell in zip(shown, cells, strict=True):
        run = 0 if keep else run + 1
        if run > 1:
            folded.pop()
        folded.append(cell if keep else Cell(num_folded=run))
    return folded


def _readable(spans: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Join differences between which only a few characters, letters by chance, are equal."""
    joined: list[Mapping[str, Any]] = []
    for place, span in enumerate(spans):
        inner = 0 < place < len(spans) - 1 and span["op"] == "equal"
        chance = inner and span["a"][1] - span["a"][0] < FEWEST_EQUAL
        if joined and joined[-1]["op"] != "equal" and (chance or span["op"] != "equal"):
            before = joined.pop()
            joined.append(
                {"op": "replace"} | {leg: [before[leg][0], span[leg][1]] for leg in ("a", "b")}
            )
        else:
            joined.append(span)
    return joined


def _pieces(texts: list[str], reveal: bool) -> Iterator[Piece]:
    a, b = texts
    for span in _readable(diff(codepoints(a), codepoints(b))):
        op, (i, j), (k, l) = span["op"], span["a"], span["b"]
        if op == "equal" and not reveal:
            continue
        shown_a, shown_b = a[i:j], b[k:l]
        if op == "equal" and j - i > 2 * CONTEXT_CHARACTERS:
            shown_a = shown_b = f"{a[i : i + CONTEXT_CHARACTERS]} … {a[j - CONTEXT_CHARACTERS : j]}"
        yield Piece(
            op=op,
            a=(i, j),
            b=(k, l),
            text_a=spaced(shown_a) if reveal else None,
            text_b=spaced(shown_b) if reveal else None,
        )
