"""Every example of a run as tokens: rendered, encoded, masked, truncated (S-03 to S-07).

Work goes in batches: the tokenizer is called for many texts at once, and no more than one batch
of texts is held beside the conversations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stacks.torch_stack.config import Data
from stacks.torch_stack.encode import Encoder, Tokens, target_mask, truncate
from stacks.torch_stack.examples import Message, Split
from stacks.torch_stack.render import Template

_BATCH_EXAMPLES = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRow:
    """An example of `tokens/` (S-24)."""

    tokens: Tokens
    text: str
    num_tokens_before_truncation: int
    typed_control_tokens: int


def token_rows(
    split: Split, template: Template, encoder: Encoder, data: Data
) -> Iterator[list[TokenRow]]:
    """The examples of a split by index, in batches."""
    index = 0
    assert split.conversations is not None
    for batch in split.conversations.iter(batch_size=_BATCH_EXAMPLES):
        wheres = [split.where(index + offset) for offset in range(len(batch["id"]))]
        yield encode_conversations(batch["id"], batch["messages"], wheres, template, encoder, data)
        index += len(wheres)


def encode_conversations(
    ids: list[str],
    conversations: list[list[Message]],
    wheres: list[str],
    template: Template,
    encoder: Encoder,
    data: Data,
) -> list[TokenRow]:
    """Conversations → token rows; `wheres` name them in errors."""
    rendered = [
        template.render(messages, where)
        for messages, where in zip(conversations, wheres, strict=True)
    ]
    encoded = encoder.encode([one.text for one in rendered], wheres)
    rows = []
    for example_id, messages, render, whole in zip(
        ids, conversations, rendered, encoded, strict=True
    ):
        full_mask = target_mask(whole, render.spans, data.mask)
        kept, mask = truncate(whole.ids, full_mask, data.max_length, data.truncation_side)
        rows.append(
            TokenRow(
                tokens=Tokens(id=example_id, ids=kept, mask=mask),
                text=render.text,
                num_tokens_before_truncation=len(whole.ids),
                typed_control_tokens=encoder.count_control_tokens(
                    [message["content"] for message in messages]
                ),
            )
        )
    return rows
