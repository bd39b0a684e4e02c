"""A conversation, deterministic draws, the held-out split and the JSON line.

Every choice is a function of SHA-256 of named parts, so that the bytes depend on the sources alone
(never on Python's `hash`, a set's order or a generator's state).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Role = Literal["system", "user", "assistant"]
T = TypeVar("T")

HELD_OUT_SHARE = 0.06
"""Share of entities (not of conversations) that go to the held-out split."""

SYSTEM_SHARE = 0.3
"""Share of conversations that open with a system prompt."""

SYSTEM_PROMPTS = (
    "You are a clinical terminology assistant. Answer from the classification only.",
    "You help medical coders. Be brief and exact.",
    "Answer questions about ICD-10-CM and the Human Phenotype Ontology.\n"
    "Do not give medical advice.",
    "You are a careful assistant for a hospital's coding department. Quote codes with their dots. "
    "When a code has subdivisions, say so. When you are not sure, say that you are not sure.",
    "Be concise.",
)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One conversation about one entity.

    `entity` decides the split; `messages` are (role, content), a system prompt first if any.
    """

    entity: str
    messages: tuple[tuple[Role, str], ...]


def digest(*parts: str) -> int:
    """The first 8 bytes of SHA-256 of the parts joined by U+001F, big-endian, unsigned."""
    return int.from_bytes(hashlib.sha256("\x1f".join(parts).encode()).digest()[:8], "big")


def share(*parts: str) -> float:
    """A number in [0, 1) drawn from the parts."""
    return digest(*parts) / 2**64


def pick(choices: Sequence[T], *parts: str) -> T:
    """One of `choices`, drawn from the parts."""
    return choices[digest(*parts) % len(choices)]


def is_held_out(entity: str) -> bool:
    """Whether all conversations about this entity belong to the held-out split."""
    return share("split", entity) < HELD_OUT_SHARE


def converse(
    entity: str, subject: str, turns: Sequence[tuple[str, str]], system: str | None = None
) -> Conversation:
    """Build a conversation from (question, answer) turns.

    `subject` names this conversation among those of its entity. Without a `system` prompt, one of
    `SYSTEM_PROMPTS` opens `SYSTEM_SHARE` of the conversations.
    """
    if system is None and share("system?", subject) < SYSTEM_SHARE:
        system = pick(SYSTEM_PROMPTS, "system", subject)
    messages: list[tuple[Role, str]] = [] if system is None else [("system", system)]
    for question, answer in turns:
        messages += [("user", question), ("assistant", answer)]
    return Conversation(entity=entity, messages=tuple(messages))


def to_line(example_id: str, conversation: Conversation) -> str:
    """The conversation as one line of JSON, with its final newline."""
    messages = [{"role": role, "content": content} for role, content in conversation.messages]
    return json.dumps({"id": example_id, "messages": messages}, ensure_ascii=False) + "\n"
