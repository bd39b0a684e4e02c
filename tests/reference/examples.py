"""One example end to end (S-03 to S-07): text, tokens, mask, truncation."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.reference.batches import Encoded
from tests.reference.conversations import Message
from tests.reference.encode import Token, Tokenizer
from tests.reference.errors import require
from tests.reference.render import Span, Template


@dataclass(frozen=True, kw_only=True)
class Example:
    """What a row of `tokens/` holds, but for split, index and id."""

    encoded: Encoded
    num_tokens_before_truncation: int
    typed_control_tokens: int


def token_mask(tokens: Sequence[Token], spans: Sequence[Span], mask: str) -> list[int]:
    """S-06: 1 where the range of a token overlaps a span."""
    if mask == "all":
        return [1] * len(tokens)
    return [
        int(any(token.start < end and start < token.stop for start, end in spans))
        for token in tokens
    ]


def make_example(
    messages: Sequence[Message],
    *,
    template: Template,
    tokenizer: Tokenizer,
    max_length: int,
    truncation_side: str,
) -> Example:
    """Renders, encodes, masks and truncates. Raises RefusedError."""
    rendered = template.render(messages)
    tokens = tokenizer.encode(rendered.text)
    require(len(tokens) > 0, "an example has no token")
    mask = token_mask(tokens, rendered.spans, template.mask)
    total = len(tokens)
    kept = slice(max(0, total - max_length), total)
    if truncation_side == "right":
        kept = slice(0, max_length)
    return Example(
        encoded=Encoded(ids=tuple(t.id for t in tokens[kept]), mask=tuple(mask[kept])),
        num_tokens_before_truncation=total,
        typed_control_tokens=sum(tokenizer.count_added(m["content"]) for m in messages),
    )
