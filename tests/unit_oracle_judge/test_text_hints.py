"""Group A of the fault catalogue: the first phase, the place, and the hint in plain words."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest

from .conftest import Judge, pair
from .synthetic import row_of

NAME = "train-005"
Mutation = Callable[[dict], None]  # type: ignore[type-arg]


def first_after(judged: Judge, mutate: Mutation, prepare: Mutation = lambda row: None):  # type: ignore[no-untyped-def]
    """Return the first divergence after one example of the second leg was mutated."""
    a, b = pair()
    for made in (a, b):
        prepare(row_of(made, NAME))
    mutate(row_of(b, NAME))
    verdict = judged(a, b)
    assert verdict.verdict == "DIVERGED"
    assert verdict.first is not None
    assert verdict.first.example == NAME
    assert verdict.first.step is not None, "a train example shows the step that consumes it"
    return verdict.first


def rewrite(change: Callable[[str], str]) -> Mutation:
    def mutate(row: dict) -> None:  # type: ignore[type-arg]
        row["text"] = change(row["text"])
        # The ids follow from the text: any other ids will do.
        row["ids"] = [*row["ids"][:-1], 99]

    return mutate


TEXTS: dict[str, tuple[Callable[[str], str], str]] = {
    "A01": (
        lambda t: "User: fever\nAssistant: gout",
        "jax renders a generic layout (User: / Assistant:) instead of the template",
    ),
    "another layout": (
        lambda t: "[INST] fever [/INST]",
        "jax renders none of the template's control tokens: another layout",
    ),
    "A02": (
        lambda t: t.replace("<|im_end|>", "<|im_end|>\n"),
        "jax has one more newline after <|im_end|>",
    ),
    "A03": (lambda t: t + "<|im_end|>", "jax has <|im_end|> twice"),
    "A03 everywhere": (
        lambda t: t.replace("<|im_end|>", "<|im_end|><|im_end|>"),
        "jax has <|im_end|> twice",
    ),
    "A05": (lambda t: " " + t, "jax has a leading space"),
    "A05 inside": (
        lambda t: t.replace("why?", " why?"),
        "jax has one more space, before character",
    ),
    "A06 in the text": (
        lambda t: t[: t.rindex("<|im_end|>")] + "\n",
        "jax has no <|im_end|> at the end",
    ),
    "A13": (
        lambda t: "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + t,
        "jax has a system turn that torch has not: a default system prompt",
    ),
    "A14": (lambda t: t.rstrip("\n"), "jax strips white space from the rendered text"),
    "CR LF": (lambda t: t.replace("<|im_end|>\n", "<|im_end|>\r\n"), "torch turns CR LF into LF"),
}


@pytest.mark.parametrize("fault", TEXTS)
def test_text_fault_is_found_in_text_with_its_hint(judged: Judge, fault: str) -> None:
    change, hint = TEXTS[fault]
    first = first_after(judged, rewrite(change))
    assert (first.phase, first.field, first.clause) == ("text", "tokens.text", "S-03")
    assert first.hint is not None
    assert first.hint.startswith(hint)


def test_normalised_text_is_named() -> None:
    from oracle.hints_text import text_hint

    from .test_ids_and_masks import make

    decomposed = unicodedata.normalize("NFD", "fièvre")
    hint = text_hint(make(decomposed, [5], "torch"), make("fièvre", [5], "jax"))
    assert hint == "jax normalises the text to NFC"


def test_text_explains_ids_and_mask_of_the_same_example(judged: Judge) -> None:
    a, b = pair()
    row = row_of(b, NAME)
    row["text"] = " " + row["text"]
    row["ids"], row["mask"] = [*row["ids"], 7], [*row["mask"], 1]
    row["num_tokens_before_truncation"] += 1
    verdict = judged(a, b)
    assert [d.phase for d in verdict.divergences] == ["text"]
    assert [(c.phase, c.because, c.num) for c in verdict.consequences] == [
        ("ids", "text", 1),
        ("mask", "text", 1),
    ]
    by_phase = {p.phase: p for p in verdict.phases}
    assert by_phase["ids"].status == by_phase["mask"].status == "consequence"
    assert by_phase["text"].agreement == 19 / 20


def test_text_of_one_example_does_not_explain_the_mask_of_another(judged: Judge) -> None:
    a, b = pair()
    row_of(b, NAME)["text"] += " "
    other = row_of(b, "eval-001")
    other["mask"] = [1] * len(other["mask"])
    verdict = judged(a, b)
    assert [(d.phase, d.example) for d in verdict.divergences] == [
        ("text", NAME),
        ("mask", "eval-001"),
    ]


def test_many_examples_with_one_fault_are_one_divergence(judged: Judge) -> None:
    a, b = pair()
    for row in b["tokens"]:
        row["text"] = row["text"].rstrip("\n")
    verdict = judged(a, b)
    assert len(verdict.divergences) == 1
    assert verdict.divergences[0].num_like_it == 19
    taken_first = b["steps"][0]["examples"][0]
    assert (verdict.divergences[0].step, verdict.divergences[0].example) == (0, taken_first)


def test_order_of_examples_is_that_of_their_first_use(judged: Judge) -> None:
    a, b = pair()
    later, sooner = b["steps"][2]["examples"][1], b["steps"][1]["examples"][3]
    for name in ("edge-000", later, sooner):
        row_of(b, name)["text"] += "\n"
    verdict = judged(a, b)
    assert verdict.first is not None
    assert (verdict.first.step, verdict.first.example) == (1, sooner)


def test_diff_of_a_text_is_aligned_in_characters(judged: Judge) -> None:
    first = first_after(judged, rewrite(lambda t: t.replace("why?", "why ?")))
    assert first.diff is not None
    ops = [entry["op"] for entry in first.diff]
    assert ops == ["equal", "insert", "equal"]
    assert first.diff[1]["a"][0] == first.diff[1]["a"][1]
