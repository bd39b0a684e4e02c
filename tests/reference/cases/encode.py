"""Cases of S-05. In the tiny tokenizers byte b has id b, so hand-worked ids read as bytes."""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand, refused
from tests.reference.cases.tokenizers import BROKEN, PAIRS, SYMBOLS

CLINICAL = "../tokenizers/clinical-4k/tokenizer.json"


def _given(tokenizer: str, text: str) -> dict[str, str]:
    path = tokenizer if tokenizer.startswith("..") else f"tokenizers/{tokenizer}.json"
    return {"tokenizer": path, "text": text}


def _hand(name: str, tokenizer: str, text: str, *tokens: tuple[int, int, int]) -> Case:
    """`tokens` are (id, start, stop)."""
    ids, ranges = [t[0] for t in tokens], [[t[1], t[2]] for t in tokens]
    return hand(name, "encode", _given(tokenizer, text), {"ids": ids, "ranges": ranges})


def _chars(name: str, tokenizer: str, text: str, *ids: int) -> Case:
    """One token a character."""
    return _hand(name, tokenizer, text, *((t, i, i + 1) for i, t in enumerate(ids)))


def _case(name: str, tokenizer: str, text: str) -> Case:
    return computed(name, "encode", _given(tokenizer, text))


def pair(left: bytes, right: bytes) -> int:
    """The id of a pair in `pairs`: é is 256, then every pair of the eight symbols in order."""
    return 257 + SYMBOLS.index(left) * len(SYMBOLS) + SYMBOLS.index(right)


assert len(PAIRS) == 65

MERGES = [
    # bc (rank 0) goes before ab (rank 2); then (a, bc) is not in the list, although abc is a word
    _hand("rank before place, and no merge by vocabulary", "ranks", "abc", (97, 0, 1), (256, 1, 3)),
    _hand("merges written as strings", "ranks-spelled", "abc", (97, 0, 1), (256, 1, 3)),
    _hand("the lower rank on the right", "ranks", "xyz", (120, 0, 1), (259, 1, 3)),
    _hand("without its rival the pair on the left", "ranks", "xyx", (260, 0, 2), (120, 2, 3)),
    _hand("leftmost among equals", "ranks", "eee", (262, 0, 3)),
    # ee ee: (ee, e) does not apply; no rank for (ee, ee)
    _hand("four alike", "ranks", "eeee", (261, 0, 2), (261, 2, 4)),
    # ee ee e: the only pair in the list is (ee, e) at the end
    _hand("five alike", "ranks", "eeeee", (261, 0, 2), (262, 2, 5)),
    _hand("six alike", "ranks", "eeeeee", (261, 0, 2), (261, 2, 4), (261, 4, 6)),
    # ab goes first (rank 0), then (ab, c) with rank 3
    _hand("two merges of one token, by the second", "twice", "abc", (258, 0, 3)),
    _hand("two merges of one token, again", "twice", "abcabc", (258, 0, 3), (258, 3, 6)),
    # bc first? No: b b c: (b, c) is the only pair
    _hand("two merges of one token, by the first", "twice", "bbc", (98, 0, 1), (257, 1, 3)),
    _hand("a merge does not cross a blank", "ranks", "ab c", (258, 0, 2), (32, 2, 3), (99, 3, 4)),
    _hand("a single byte", "bytes", "a", (97, 0, 1)),
]

RANGES = [
    # f09f and 9880 both lie in the one character
    _hand("an emoji in two tokens", "shared", "\U0001f600", (256, 0, 1), (257, 0, 1)),
    _hand(
        "an emoji in four tokens",
        "bytes",
        "\U0001f600",
        (0xF0, 0, 1),
        (0x9F, 0, 1),
        (0x98, 0, 1),
        (0x80, 0, 1),
    ),
    # c3 a9 c3 a9: the middle token holds a byte of each é
    _hand(
        "a token across two characters",
        "shared",
        "\u00e9\u00e9",
        (0xC3, 0, 1),
        (258, 0, 2),
        (0xA9, 1, 2),
    ),
    _hand(
        "a token that ends inside a character",
        "shared",
        "\u00e9!\U0001f600",
        # pre-tokens: é (a letter) and !😀: c3 a9 | ! f09f 9880
        (0xC3, 0, 1),
        (0xA9, 0, 1),
        (260, 1, 3),
        (257, 2, 3),
    ),
    _hand(
        "ranges are not trimmed",
        "pairs",
        " a  a",
        # " a", " ", " a"
        (pair(b" ", b"a"), 0, 2),
        (32, 2, 3),
        (pair(b" ", b"a"), 3, 5),
    ),
    _chars("ranges count characters, not bytes", "pairs", "\u00e9.\u00e9", 256, 46, 256),
    _hand(
        "after an added token",
        "shared",
        "\U0001f600<|im_end|>\U0001f600",
        (256, 0, 1),
        (257, 0, 1),
        (402, 1, 11),
        (256, 11, 12),
        (257, 11, 12),
    ),
]

SPACES = [
    # \s+(?!\S) leaves the last blank to the word
    _hand(
        "blanks before a word", "pairs", "   a", (pair(b" ", b" "), 0, 2), (pair(b" ", b"a"), 2, 4)
    ),
    _hand("blanks at the end stay together", "pairs", "a  ", (97, 0, 1), (pair(b" ", b" "), 1, 3)),
    _hand("LF does not join a word", "pairs", "\na", (10, 0, 1), (97, 1, 2)),
    _hand("two LF before a word part", "pairs", "\n\na", (10, 0, 1), (10, 1, 2), (97, 2, 3)),
    _hand("LF and blank before a word", "pairs", "\n a", (10, 0, 1), (pair(b" ", b"a"), 1, 3)),
    _hand("blank and LF before a word", "pairs", " \na", (32, 0, 1), (10, 1, 2), (97, 2, 3)),
    _hand("a blank and a number", "pairs", " 1", (pair(b" ", b"1"), 0, 2)),
    _hand("letters and numbers part", "pairs", "a1", (97, 0, 1), (49, 1, 2)),
    _hand("a blank and a mark", "pairs", " .", (pair(b" ", b"."), 0, 2)),
    _hand("marks and letters part", "pairs", ".a", (46, 0, 1), (97, 1, 2)),
    _hand("contraction", "pairs", "a't", (97, 0, 1), (pair(b"'", b"t"), 1, 3)),
    # 't is taken before the letters that follow it
    _hand(
        "contraction inside a word",
        "pairs",
        "a'ta",
        (97, 0, 1),
        (pair(b"'", b"t"), 1, 3),
        (97, 3, 4),
    ),
    # a blank before the quote takes the mark, and the contraction is missed
    _hand("blank before a contraction", "pairs", " 't", (pair(b" ", b"'"), 0, 2), (116, 2, 3)),
    _case("no contraction in capitals", "pairs", "A'T'S'LL a'll a's a're a've a'd a'm"),
    _case("all contractions", "bytes", "'s't're've'm'll'd'x"),
    _case(
        "every kind of white space",
        "pairs",
        "a \t\n\r\u00a0\u2003\u2028\u2029\u3000\u0085\u000b\u000c a",
    ),
    _case("zero-width characters are marks", "pairs", "a\u200b\u200d\ufeff\u2060a"),
    _case("many LF", "pairs", "\n\n\n\n a\n\n  \n1\n"),
]

CLASSES = [
    _case("combining marks part from their letter", "pairs", "ae\u0301a a\u0301\u0301"),
    _case(
        "scripts",
        "bytes",
        "\u4e2d\u6587 "
        "\u0420\u0443\u0441 \u05e2\u05d1 \u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940",
    ),
    _case("numbers that are not decimal", "pairs", "1\u00b2\u2167\u00bd\u0663\U0001d7d9 1"),
    _case("family emoji", "shared", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600"),
    _case("ligature, Angstrom and full width are kept", "bytes", "\ufb01\u212b\uff21e\u0301"),
    _case("control characters", "bytes", "a\u0000b\u0001\u007f\u001bc"),
    _case("CR LF", "pairs", "a\r\n\r\na\r"),
    _case("last code point", "bytes", "\U0010ffff\ufffd"),
    _case(
        "all 256 byte values that UTF-8 has",
        "bytes",
        "".join(map(chr, [*range(0x100), 0x7FF, 0x800, 0xFFFF, 0x10000, 0xF0000, 0x10FFFF])),
    ),
]

STAGES = [
    _hand("use_regex absent means true", "pairs-no-use-regex-key", "a1", (97, 0, 1), (49, 1, 2)),
    _hand(
        "without the expression all is one pre-token",
        "pairs-bare",
        "a1 .",
        (pair(b"a", b"1"), 0, 2),
        (pair(b" ", b"."), 2, 4),
    ),
    _hand(
        "leftmost pair of equal rank in one pre-token",
        "pairs-bare",
        "aaa",
        (pair(b"a", b"a"), 0, 2),
        (97, 2, 3),
    ),
    _chars("digits alone", "pairs-digits", "11a", 49, 49, 97),
    # Digits cuts first, so the blank is no longer beside the number
    _chars("digits part from the blank before", "pairs-digits", " 11", 32, 49, 49),
    _hand(
        "runs of digits",
        "pairs-digit-runs",
        "a11 ",
        (97, 0, 1),
        (pair(b"1", b"1"), 1, 3),
        (32, 3, 4),
    ),
    _case("digits of other kinds", "pairs-digits", "1\u00b2\u2167\u00bd\u0663 a1.1"),
    _case("runs of digits of other kinds", "pairs-digit-runs", "1\u00b2\u2167\u00bd\u0663 a1.1"),
    _hand(
        "split: a blank joins letters, not numbers",
        "pairs-split",
        " a 1",
        (pair(b" ", b"a"), 0, 2),
        (32, 2, 3),
        (49, 3, 4),
    ),
    _hand(
        "split: a quote joins letters", "pairs-split", "a'a", (97, 0, 1), (pair(b"'", b"a"), 1, 3)
    ),
    _hand(
        "split: numbers in threes",
        "pairs-split",
        "1111",
        (pair(b"1", b"1"), 0, 2),
        (49, 2, 3),
        (49, 3, 4),
    ),
    _hand("split: LF after marks", "pairs-split", ".\na", (pair(b".", b"\n"), 0, 2), (97, 2, 3)),
    _hand("split: LF together", "pairs-split", "\n\na", (pair(b"\n", b"\n"), 0, 2), (97, 2, 3)),
    _case(
        "split then digits then byte level", "pairs-split-digits", " a't 111.\n\n  \u00e9\u00e9 a1"
    ),
    _case("split, mixed text", "pairs-split", "  a\r\n\n t'a ... 1a1 \u00e9\u00e9\n"),
    _hand("nothing is added or cut", "ignored-parts", "abab", (256, 0, 2), (256, 2, 4)),
    _hand("an added token of ignored parts", "ignored-parts", "<s>ab", (400, 0, 3), (256, 3, 5)),
]

ADDED = [
    _hand(
        "added tokens",
        "bytes",
        "<|im_start|>a<|im_end|>",
        (401, 0, 12),
        (97, 12, 13),
        (402, 13, 23),
    ),
    _hand("the same twice", "bytes", "<pad><pad>", (400, 0, 5), (400, 5, 10)),
    _hand(
        "blanks beside an added token are kept",
        "bytes",
        " <pad> ",
        (32, 0, 1),
        (400, 1, 6),
        (32, 6, 7),
    ),
    # each piece is pre-tokenised alone: the end of a piece is an end for \s+(?!\S)
    _hand(
        "two blanks before an added token",
        "pairs",
        "a  <pad>",
        (97, 0, 1),
        (pair(b" ", b" "), 1, 3),
        (400, 3, 8),
    ),
    _hand(
        "no merge across an added token", "pairs", "a<pad>a", (97, 0, 1), (400, 1, 6), (97, 6, 7)
    ),
    _hand("the longest at a place", "overlaps", "<a><b>", (401, 0, 6)),
    _hand(
        "the longest, then the rest",
        "overlaps",
        "<a><a><b><b>",
        (400, 0, 3),
        (401, 3, 9),
        (402, 9, 12),
    ),
    # abcd and bcde overlap: the leftmost place wins, e is left over
    _hand("leftmost before another that overlaps", "overlaps", "abcde", (404, 0, 4), (101, 4, 5)),
    _hand(
        "the shorter where the longer does not end",
        "overlaps",
        "abcx",
        (403, 0, 2),
        (99, 2, 3),
        (120, 3, 4),
    ),
    _hand("overlap from the second place", "overlaps", "bcdeab", (405, 0, 4), (403, 4, 6)),
    _hand(
        "an added token wins over a merge", "overlaps", "aabb", (97, 0, 1), (403, 1, 3), (98, 3, 4)
    ),
    _hand("an added token with blanks", "overlaps", "a x b", (97, 0, 1), (406, 1, 4), (98, 4, 5)),
    _hand("its blank is used once", "overlaps", " x x ", (406, 0, 3), (120, 3, 4), (32, 4, 5)),
    _hand(
        "an added emoji is one token",
        "overlaps",
        "\U0001f600\u00e9",
        (407, 0, 1),
        (0xC3, 1, 2),
        (0xA9, 1, 2),
    ),
    # leftmost first, whatever `normalized` says: <x>< is longest at 0, then y>
    _hand(
        "leftmost and longest among both kinds",
        "two-kinds",
        "<x><y>",
        (402, 0, 4),
        (121, 4, 5),
        (62, 5, 6),
    ),
    _hand(
        "a special normalised token before one that is neither",
        "two-kinds",
        "<x>x><y",
        (400, 0, 3),
        (401, 3, 7),
    ),
    _hand(
        "leftmost although the other kind overlaps",
        "two-kinds",
        "<<x><y>",
        (60, 0, 1),
        (402, 1, 5),
        (121, 5, 6),
        (62, 6, 7),
    ),
    _hand(
        "part of an added token is text",
        "bytes",
        "<pad",
        (60, 0, 1),
        (112, 1, 2),
        (97, 2, 3),
        (100, 3, 4),
    ),
    _case("capitals are another text", "bytes", "<PAD><Pad><pad >"),
    _case(
        "a control token typed in a text", "bytes", "the token <|im_end|> ends a turn<|im_start|>"
    ),
]

CLINICAL_CASES = [
    _case(
        "clinical tokenizer: a turn",
        CLINICAL,
        "<|im_start|>user\nWhat does A00.1 stand for?<|im_end|>\n",
    ),
    _case(
        "clinical tokenizer: words, numbers, marks",
        CLINICAL,
        "  Fracture of lower end of radius (S52.5), closed; 2nd visit. Don't code twice!\n\n",
    ),
    _case(
        "clinical tokenizer: other scripts",
        CLINICAL,
        "na\u00efve \u2013 \u03bcg/dL \u2265 3.5 \u00b7 "
        "\u6025\u6027\u80be\u708e \U0001fac0\ufe0f\U0001f469\u200d\u2695\ufe0f e\u0301",
    ),
    _case("clinical tokenizer: white space", CLINICAL, "\t a \r\n\r\n  b\u00a0c\u2028d   "),
]

# `gaps` has no symbol for z and for the byte 0x9f; ab is 256 there
GAPS = [
    _hand(
        "a vocabulary with gaps",
        "gaps",
        "ab\u00e9y",
        (256, 0, 2),
        (0xC3, 2, 3),
        (0xA9, 2, 3),
        (121, 3, 4),
    ),
    _hand(
        "a missing byte inside an added token", "gaps", "a<z>b", (97, 0, 1), (403, 1, 4), (98, 4, 5)
    ),
    *(
        refused(f"refused: {name}", "encode", _given("gaps", text))
        for name, text in {
            "a missing byte alone": "z",
            "a missing byte in a word": "abzab",
            "a missing byte at the end of a text": "ab z",
            "a missing byte beside an added token": "<pad>z<pad>",
            "a missing second byte of a character": "ab\u00df",
            "a missing byte in an emoji": "\U0001f600",
        }.items()
    ),
]

REFUSED = [refused(f"refused: {name}", "encode", _given(f"broken-{name}", "ab")) for name in BROKEN]

CLAUSE = Clause(
    clause="S-05",
    note=(
        "Exact. Tokenizers in tokenizers/ are written by the same program: byte b has id b, merged"
        " tokens from 256, added tokens from 400."
    ),
    cases=[*MERGES, *RANGES, *SPACES, *CLASSES, *STAGES, *ADDED, *CLINICAL_CASES, *GAPS, *REFUSED],
)

Given = dict[str, Any]
