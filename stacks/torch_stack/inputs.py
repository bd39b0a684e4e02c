"""What a leg reads before it works: template, tokenizer and conversations (S-02, S-03, S-05)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stacks.torch_stack.batch import Lazy
from stacks.torch_stack.config import Config
from stacks.torch_stack.encode import Encoder, Tokens
from stacks.torch_stack.examples import SPLITS, Split, count_splits, load_splits
from stacks.torch_stack.render import Template, load_template, read_template
from stacks.torch_stack.tokenizer import TokenizerFile, load_tokenizer
from stacks.torch_stack.tokens import encode_conversations, token_rows

if TYPE_CHECKING:
    from stacks.torch_stack.trace import TokenTable


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that the data phases need."""

    config: Config
    template: Template | None  # None where nothing is rendered
    template_source: bytes
    template_sha256: str
    tokenizer: TokenizerFile
    pad_id: int
    splits: dict[str, Split]

    @property
    def num_examples(self) -> dict[str, int]:
        """Of each split."""
        return {name: one.num_examples for name, one in self.splits.items()}


def load_inputs(config: Config, rendered: bool = True) -> Inputs:
    """Read what the config names under [data]; unless `rendered`, only to hash and count it."""
    data = config.data
    tokenizer = load_tokenizer(config.resolve(data.tokenizer))
    for key, token in (("bos_token", data.bos_token), ("eos_token", data.eos_token)):
        if token:
            tokenizer.token_id(key, token)
    path = config.resolve(data.template)
    if rendered:
        template, source, sha256 = load_template(
            path, bos_token=data.bos_token, eos_token=data.eos_token, mask=data.mask
        )
    else:
        template, (source, _, sha256) = None, read_template(path)
    named = {"train": data.train, "eval": data.eval, "edge": data.edge}
    files: dict[str, Sequence[Path]]
    files = {name: [config.resolve(one) for one in named[name]] for name in SPLITS}
    return Inputs(
        config=config,
        template=template,
        template_source=source,
        template_sha256=sha256,
        tokenizer=tokenizer,
        pad_id=tokenizer.token_id("pad_token", data.pad_token),
        splits=load_splits(files) if rendered else count_splits(files),
    )


def tokenize(
    inputs: Inputs,
    table: "TokenTable | None",
    check_stop: Callable[[], None],
    keep: bool = True,
) -> dict[str, list[Tokens]]:
    """Encode every split in the order train, eval, edge, and write each example to `table`.

    Returns the examples that training needs, those of train and eval, unless `keep` is false.
    `check_stop` is called between batches and may raise.
    """
    assert inputs.template is not None
    encoder = Encoder(inputs.tokenizer)
    examples: dict[str, list[Tokens]] = {"train": [], "eval": []}
    for name in SPLITS:
        split, num_done = inputs.splits[name], 0
        for rows in token_rows(split, inputs.template, encoder, inputs.config.data):
            check_stop()
            if table is not None:
                table.write(name, num_done, rows)
            if keep and name in examples:
                examples[name] += [row.tokens for row in rows]
            num_done += len(rows)
    if table is not None:
        table.close()
    return examples


def lazy_examples(inputs: Inputs) -> Lazy:
    """The training split, each example rendered and encoded when it is first asked for."""
    split, template = inputs.splits["train"], inputs.template
    if split.conversations is None or template is None:
        return Lazy([], _refuse)
    conversations, encoder = split.conversations, Encoder(inputs.tokenizer)

    def encode(index: int) -> Tokens:
        one = conversations[index]
        (row,) = encode_conversations(
            [one["id"]],
            [one["messages"]],
            [split.where(index)],
            template,
            encoder,
            inputs.config.data,
        )
        return row.tokens

    return Lazy(list(conversations["id"]), encode)


def _refuse(index: int) -> Tokens:
    raise AssertionError(f"example {index} was asked for, but nothing is rendered")
