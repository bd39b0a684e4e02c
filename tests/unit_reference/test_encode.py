import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.cases.tokenizers import VALID
from tests.reference.encode import ALPHABET, Tokenizer, isolate, load, merge

LOADED: dict[str, Tokenizer] = {name: load(json.dumps(record)) for name, record in VALID.items()}
SPICE = "at1 \n'.\u00e9\U0001f600\u0301\u4e2d\u00b2\u2028\u00a0\t\r!xyzbce<>|_impadstrend"
TEXTS = st.text(
    st.sampled_from(SPICE) | st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=40
)


def test_the_alphabet_is_the_usual_one() -> None:
    assert len(set(ALPHABET)) == 256
    assert (ALPHABET[0x20], ALPHABET[0x0A], ALPHABET[0x00]) == ("Ġ", "Ċ", "Ā")
    assert (ALPHABET[ord("a")], ALPHABET[0xC3], ALPHABET[0xAD]) == ("a", "Ã", "Ń")


def test_merges_by_hand() -> None:
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("ab", "c"): 2}
    assert merge([*"abc"], ranks) == ["a", "bc"]
    assert merge([*"abab"], ranks) == ["ab", "ab"]
    assert merge([*"aaa"], {("a", "a"): 0}) == ["aa", "a"]
    assert merge([*"aaaa"], {("a", "a"): 0, ("aa", "aa"): 1}) == ["aaaa"]


def test_isolation_loses_nothing() -> None:
    import regex

    assert isolate(regex.compile("b+"))("abba") == ["a", "bb", "a"]
    assert isolate(regex.compile("x"))("abba") == ["abba"]


# `gaps` is left out of both: it lacks symbols on purpose, so most texts are refused (S-05)
@given(st.sampled_from(sorted(set(LOADED) - {"gaps"})), TEXTS)
def test_ranges_cover_the_text_in_order(name: str, text: str) -> None:
    tokens = LOADED[name].encode(text)
    assert all(token.start < token.stop for token in tokens)
    assert all(a.start <= b.start and a.stop <= b.stop for a, b in pairwise(tokens))
    assert {i for t in tokens for i in range(t.start, t.stop)} == set(range(len(text)))


# `two-kinds` is left out: the library cuts special normalised tokens in a second pass, S-05 in one
@settings(deadline=None)
@given(st.sampled_from(sorted(set(LOADED) - {"two-kinds", "ignored-parts", "gaps"})), TEXTS)
def test_ids_are_those_of_the_tokenizers_library(name: str, text: str) -> None:
    library = pytest.importorskip("tokenizers")
    judge = library.Tokenizer.from_str(json.dumps(VALID[name]))
    encoding = judge.encode(text, add_special_tokens=False)
    assert [token.id for token in LOADED[name].encode(text)] == encoding.ids
