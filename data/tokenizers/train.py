"""Train the byte-level BPE tokenizer `clinical-4k`: `python data/tokenizers/train.py --help`.

Input: the contents of the committed ICD-10-CM sample, in file order. The full byte alphabet is in
the vocabulary, so every text encodes and decodes back to itself.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "clinical" / "sample" / "train.jsonl"
VOCABULARY_SIZE = 4096
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1 and 2."""


def contents(path: Path) -> Iterator[str]:
    """Every message's content, in file order."""
    with open(path, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            for message in json.loads(line)["messages"]:
                yield message["content"]


def train(texts: Iterator[str]) -> Tokenizer:
    """Train on the texts. Ties between pairs are broken by the library in a fixed way."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    control = [AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=control,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def provenance(source: Path, tokenizer_bytes: bytes) -> dict[str, object]:
    """What the file was made from and with."""
    return {
        "command": "python data/tokenizers/train.py",
        "input": "data/clinical/sample/train.jsonl",
        "input_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "tokenizer_sha256": hashlib.sha256(tokenizer_bytes).hexdigest(),
        "tokenizers_version": tokenizers.__version__,
        "vocabulary_size": VOCABULARY_SIZE,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="train.py", description="Train the byte-level BPE tokenizer clinical-4k."
    )
    parser.add_argument("--out", type=Path, default=HERE / "clinical-4k", help="folder to write to")
    folder: Path = parser.parse_args(arguments).out
    if not SAMPLE.is_file():
        print(
            f"train.py: {SAMPLE} is missing; run data/clinical/prepare.py --sample first.",
            file=sys.stderr,
        )
        return 2
    tokenizer = train(contents(SAMPLE))
    if tokenizer.get_vocab_size() != VOCABULARY_SIZE:
        print(
            f"train.py: the text gives only {tokenizer.get_vocab_size()} tokens, "
            f"{VOCABULARY_SIZE} are needed; use a larger sample.",
            file=sys.stderr,
        )
        return 2
    text = (tokenizer.to_str(pretty=True) + "\n").encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(text)
    record = json.dumps(provenance(SAMPLE, text), indent=2, sort_keys=True) + "\n"
    (folder / "provenance.json").write_text(record, encoding="utf-8", newline="\n")
    print(f"{folder / 'tokenizer.json'}: {VOCABULARY_SIZE} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
