"""What a leg reads before it works: template, tokenizer and conversations (S-02, S-03, S-05)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stacks.torch_stack.config import Config
from stacks.torch_stack.encode import Encoder, Tokens
from stacks.torch_stack.examples import SPLITS, Split, load_splits
from stacks.torch_stack.render import Template, load_template
from stacks.torch_stack.tokenizer import TokenizerFile, load_tokenizer
from stacks.torch_stack.tokens import token_rows

if TYPE_CHECKING:
    from stacks.torch_stack.trace import TokenTable


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that the data phases need."""

    config: Config
    template: Template
    template_source: bytes
    template_sha256: str
    tokenizer: TokenizerFile
    pad_id: int
    splits: dict[str, Split]


def load_inputs(config: Config) -> Inputs:
    """Read what the config names under [data]."""
    data = config.data
    tokenizer = load_tokenizer(config.resolve(data.tokenizer))
    for key, token in (("bos_token", data.bos_token), ("eos_token", data.eos_token)):
        if token:
            tokenizer.token_id(key, token)
    template, source, sha256 = load_template(
        config.resolve(data.template),
        bos_token=data.bos_token,
        eos_token=data.eos_token,
        mask=data.mask,
    )
    files = {"train": data.train, "eval": data.eval, "edge": data.edge}
    return Inputs(
        config=config,
        template=template,
        template_source=source,
        template_sha256=sha256,
        tokenizer=tokenizer,
        pad_id=tokenizer.token_id("pad_token", data.pad_token),
        splits=load_splits({name: [config.resolve(one) for one in files[name]] for name in SPLITS}),
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
