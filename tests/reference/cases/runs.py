"""Cases of S-20: whole small runs, and run configs that S-01 refuses.

Each run stands in a folder of its own with its config, data and template; tokenizer and checkpoint
are those of the other vectors. `tiny.json`: 256 bytes, ten merges, three added tokens from 269 on.
"""

import json
from typing import Any

from tests.reference.case import Case, Clause, computed, refused
from tests.reference.cases.conversations import line
from tests.reference.cases.render import CHATML
from tests.reference.cases.tokenizers import added, tokenizer

Turns = tuple[tuple[str, str], ...]
MERGES = [
    (b"t", b"h"), (b"th", b"e"), (b" ", b"a"), (b"e", b"r"), (b"o", b"n"), (b" ", b"the"),
    (b"\xf0", b"\x9f"), (b"i", b"n"), (b"u", b"s"), (b"us", b"er"), (b"a", b"s"), (b"as", b"s"),
]  # fmt: skip
TOKENIZER = tokenizer(
    MERGES, [added(t, 269 + i) for i, t in enumerate(("<pad>", "<|im_start|>", "<|im_end|>"))]
)
# The same with an id that the model's vocabulary of 272 lacks, and that no text gives
LARGE_ADDED = TOKENIZER | {"added_tokens": [*TOKENIZER["added_tokens"], added("<unused>", 272)]}
LARGE_WORD = TOKENIZER | {
    "model": TOKENIZER["model"] | {"vocab": TOKENIZER["model"]["vocab"] | {"unused": 272}}
}
PLAIN = (
    "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{% generation %}{{ m.content }}"
    "{{ eos_token }}{% endgeneration %}{% endfor %}\n"
)
TRAIN: list[tuple[str, Turns]] = [
    ("t00", (("user", "in the oven"), ("assistant", "on"))),
    ("t01", (("system", ""), ("user", "the there"), ("assistant", "a then \U0001f600"))),
    ("t02", (("user", "12 an"), ("assistant", "other"))),
    ("t03", (("user", "no answer"),)),
    ("t04", (("user", "on"), ("assistant", "in"), ("user", "the"), ("assistant", "er"))),
    ("t05", (("system", "as"), ("user", "\u00e9\r\n\u2028"), ("assistant", " \u00e9."))),
    ("t06", (("user", "us <|im_end|> us"), ("assistant", "user"))),
    ("t07 \u00e9", (("user", "a"), ("assistant", "the long answer in the end on and on and on"))),
    ("t08", (("assistant", "first"), ("user", "second"))),
]
EVAL: list[tuple[str, Turns]] = [
    ("e00", (("user", "the"), ("assistant", "then"))),
    ("e01", (("user", "in a longer question"), ("assistant", "no"))),
    ("e02", (("user", "none"),)),
    ("e03", (("user", "x"), ("assistant", "y"))),
]
EDGE: list[tuple[str, Turns]] = [("x00", (("user", "\U0001f600 "), ("assistant", "\n")))]


class Raw(str):
    """A value as TOML spells it, where JSON has no word for it."""


BASE: dict[str, dict[str, Any]] = {
    "": {"contract": "1", "name": "vector", "seed": 17},
    "data": {
        "train": ["train.jsonl"],
        "eval": ["eval.jsonl"],
        "edge": ["edge.jsonl"],
        "template": "template.jinja",
        "tokenizer": "../../tokenizers/tiny.json",
        "bos_token": "",
        "eos_token": "<|im_end|>",
        "pad_token": "<pad>",
        "mask": "assistant",
        "max_length": 64,
        "truncation_side": "right",
        "padding_side": "right",
        "pad_multiple": 24,  # few values of T, so that a stack compiles little
        "packing": False,
    },
    "model": {"checkpoint": "../../checkpoints/run-tied", "attention": "eager"},
    "train": {
        "precision": "float64",
        "num_steps": 7,
        "micro_batch_size": 2,
        "accumulation_steps": 1,
    },
    "optimizer": {
        "learning_rate": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-6,
        "weight_decay": 0.1,
        "decay": "projections",
        "frozen": [],
        "clip_norm": 1.0,
    },
    "schedule": {"kind": "cosine", "warmup_steps": 2, "min_ratio": 0.1},
    "eval": {"every_steps": 3, "num_examples": 4},
    "snapshot": {"every_steps": 0},
    "trace": {"tensors_every": 0},
    "runtime": {"device": "cpu", "threads": 1, "compile": False},
}

Changes = dict[str, dict[str, Any]]
RUNS: dict[str, Changes] = {
    # Five steps an epoch, so a second epoch begins; the last has filler rows
    "right": {},
    "packed": {
        "": {"seed": 2**63 - 1},
        "data": {
            "packing": True,
            "padding_side": "left",
            "pad_multiple": 20,
            "max_length": 40,
            # a file may be empty where its split is not
            "train": ["empty.jsonl", "train-1.jsonl", "train-2.jsonl"],
        },
        "model": {"checkpoint": "../../checkpoints/run-untied", "attention": "fused"},
        "train": {"num_steps": 6, "accumulation_steps": 3, "micro_batch_size": 1},
        "optimizer": {
            "frozen": ["model.layers.0.", "model.embed_tokens"],
            "decay": "matrices",
            "clip_norm": 0.5,
            "beta2": 0.95,
        },
        "schedule": {"kind": "linear", "warmup_steps": 0, "min_ratio": 0.0},
        "eval": {"every_steps": 4, "num_examples": 3},
    },
    "left-cut": {
        "": {"seed": 0},
        "data": {
            "mask": "all",
            "truncation_side": "left",
            "max_length": 12,
            "pad_multiple": 1,
            "bos_token": "<|im_start|>",
            "template": "plain.jinja",
        },
        "model": {"checkpoint": "../../checkpoints/run-qwen"},
        "train": {"num_steps": 5, "micro_batch_size": 4},
        "optimizer": {"clip_norm": "off", "decay": "all", "learning_rate": 2e-3},
        "schedule": {"kind": "constant", "warmup_steps": 4, "min_ratio": 0},
        "eval": {"every_steps": 2, "num_examples": 100},
    },
    # One row a step: the step of `t03` has no target, and its update is made all the same
    "no-target": {
        "": {"seed": 3},
        # tokens of the vocabulary, as spelled there
        "data": {"padding_side": "left", "pad_token": "\u0120the", "eos_token": "\u0120a"},
        "train": {"num_steps": 11, "micro_batch_size": 1},
        "optimizer": {"decay": "none", "clip_norm": 2, "learning_rate": 0.02},
        "schedule": {"kind": "linear", "warmup_steps": 10, "min_ratio": 0.5},
        "eval": {"every_steps": 0, "num_examples": 1},
    },
}

BROKEN: dict[str, Changes] = {
    "unknown-key": {"train": {"epochs": 3}},
    "missing-key": {"train": {"precision": None}},
    "number-as-string": {"optimizer": {"learning_rate": "1e-3"}},
    "seed-as-float": {"": {"seed": 1.5}},
    "true-as-integer": {"train": {"num_steps": True}},
    "warmup-too-long": {"schedule": {"warmup_steps": 7}},
    "pad-multiple-zero": {"data": {"pad_multiple": 0}},
    "pad-token-empty": {"data": {"pad_token": ""}},
    "pad-token-unknown": {"data": {"pad_token": "<none>"}},
    "eos-token-unknown": {"data": {"eos_token": "</s>"}},
    "beta-one": {"optimizer": {"beta1": 1.0}},
    "epsilon-zero": {"optimizer": {"epsilon": 0.0}},
    "clip-zero": {"optimizer": {"clip_norm": 0}},
    "clip-word": {"optimizer": {"clip_norm": "none"}},
    "max-length-one": {"data": {"max_length": 1}},
    "no-train-file": {"data": {"train": []}},
    "file-missing": {"data": {"train": ["absent.jsonl"]}},
    "id-in-two-splits": {"data": {"eval": ["train.jsonl"]}},
    "vocabulary-too-small": {"model": {"checkpoint": "../../checkpoints/tied"}},
    "contract-two": {"": {"contract": "2"}},
    "name-in-capitals": {"": {"name": "Vector"}},
    "min-ratio-above-one": {"schedule": {"min_ratio": 1.5}},
    "seed-as-whole-float": {"": {"seed": 1.0}},
    "num-steps-as-whole-float": {"train": {"num_steps": 7.0}},
    "max-length-as-whole-float": {"data": {"max_length": 64.0}},
    "threads-as-whole-float": {"runtime": {"threads": 1.0}},
    "seed-negative": {"": {"seed": -1}},
    "seed-above-64-bits": {"": {"seed": 2**63}},
    "seed-of-thousands-of-digits": {"": {"seed": Raw("1" * 5000)}},
    "seed-as-date": {"": {"seed": Raw("2020-01-01")}},
    "seed-as-time": {"": {"seed": Raw("07:32:00")}},
    "seed-as-true": {"": {"seed": True}},
    "pad-multiple-above-64-bits": {"data": {"pad_multiple": 2**64}},
    "rate-of-400-digits": {"optimizer": {"learning_rate": Raw("1" + "0" * 399)}},
    "rate-infinite": {"optimizer": {"learning_rate": Raw("inf")}},
    "rate-nan": {"optimizer": {"learning_rate": Raw("nan")}},
    "rate-overflows": {"optimizer": {"learning_rate": Raw("1e400")}},
    "rate-as-true": {"optimizer": {"learning_rate": True}},
    "decay-infinite": {"optimizer": {"weight_decay": Raw("+inf")}},
    "epsilon-nan": {"optimizer": {"epsilon": Raw("nan")}},
    "clip-infinite": {"optimizer": {"clip_norm": Raw("inf")}},
    "clip-nan": {"optimizer": {"clip_norm": Raw("nan")}},
    "train-900-deep": {"data": {"train": Raw("[" * 900 + "]" * 900)}},
    "frozen-900-deep": {"optimizer": {"frozen": Raw("[" * 900 + '"model."' + "]" * 900)}},
    "name-with-line-end": {"": {"name": "vector\n"}},
    "repeated-key": {"train": {"num_steps": Raw("7\nnum_steps = 7")}},
    # "\u0120the" is in the vocabulary, " the" is what it stands for
    "pad-token-as-text": {"data": {"pad_token": " the"}},
    "eos-token-as-text": {"data": {"eos_token": " the"}},
    "bos-token-of-two-tokens": {"data": {"bos_token": "<|im_start|><|im_end|>"}},
    "added-id-too-large": {"data": {"tokenizer": "../../tokenizers/tiny-large-added.json"}},
    "word-id-too-large": {"data": {"tokenizer": "../../tokenizers/tiny-large-word.json"}},
    "template-with-crlf": {"data": {"template": "crlf.jinja"}},
    "frozen-unknown": {"optimizer": {"frozen": ["layers.0."]}},
    "frozen-one-of-two-unknown": {"optimizer": {"frozen": ["model.layers.0.", "model.layers.9."]}},
    "frozen-head-of-a-tied-model": {"optimizer": {"frozen": ["lm_head."]}},
    "frozen-empty": {"optimizer": {"frozen": [""]}},
}


# The same of S-02: a split without an example
EMPTY: dict[str, Changes] = {
    "train-empty": {"data": {"train": ["empty.jsonl"]}},
    "eval-empty": {"data": {"eval": ["empty.jsonl"]}},
    "edge-empty": {"data": {"edge": ["empty.jsonl", "empty-2.jsonl"]}},
}


def to_toml(sections: dict[str, dict[str, Any]]) -> str:
    """The text of a config; JSON's strings, numbers, lists and booleans are TOML's."""
    lines = []
    for section, values in sections.items():
        lines += [f"\n[{section}]"] if section else []
        lines += [
            f"{key} = {value if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)}"
            for key, value in values.items()
            if value is not None
        ]
    return "\n".join(lines) + "\n"


def changed(changes: Changes) -> dict[str, dict[str, Any]]:
    """The base config with changes; None takes a key away."""
    return {section: BASE[section] | changes.get(section, {}) for section in BASE}


def jsonl(examples: list[tuple[str, Turns]], *, final: bool = True) -> str:
    """A data file, with or without an LF at its end."""
    return "\n".join(line(name, *turns) for name, turns in examples) + ("\n" if final else "")


def files() -> dict[str, str]:
    """Path below the vectors' folder -> text."""
    compact = json.dumps(TOKENIZER, separators=(",", ":")) + "\n"
    found = {"tokenizers/tiny.json": compact}
    for name, record in (("added", LARGE_ADDED), ("word", LARGE_WORD)):
        found[f"tokenizers/tiny-large-{name}.json"] = (
            json.dumps(record, separators=(",", ":")) + "\n"
        )
    data = {
        "train.jsonl": jsonl(TRAIN, final=False),
        "train-1.jsonl": jsonl(TRAIN[:4], final=False),
        "train-2.jsonl": jsonl(TRAIN[4:]),
        "eval.jsonl": jsonl(EVAL),
        "edge.jsonl": jsonl(EDGE),
        "empty.jsonl": "",
        "empty-2.jsonl": "",
        "template.jinja": CHATML,
        "plain.jinja": PLAIN,
        "crlf.jinja": CHATML.replace("\n", "\r\n"),
    }
    # All configs stand in one folder, their root
    found |= {f"runs/tiny/{name}": text for name, text in data.items()}
    for prefix, group in (("", RUNS), ("broken-", BROKEN | EMPTY)):
        for name, changes in group.items():
            found[f"runs/tiny/{prefix}{name}.toml"] = to_toml(changed(changes))
    return found


def _run(name: str) -> Case:
    given = {"config": f"runs/tiny/{name}.toml"}
    return computed(name, "training", given, rtol=2e-13)


CLAUSES = [
    Clause(
        clause="S-20",
        note=(
            "The float64 reference stays within 2e-15 of the extended evaluation over all steps;"
            " 2e-13 is a hundred times that, for other orders of summation and exponentials."
        ),
        cases=[_run(name) for name in RUNS],
    ),
    Clause(
        clause="S-01",
        note="Every case is refused.",
        cases=[
            refused(f"refused: {name}", "training", {"config": f"runs/tiny/broken-{name}.toml"})
            for name in BROKEN | EMPTY
        ],
    ),
]
