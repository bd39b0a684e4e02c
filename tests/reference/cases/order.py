"""Cases of S-08. Hand-worked orders use `printf 'seed:epoch:id' | sha256sum`."""

from tests.reference.case import Clause, computed, hand


def _order(seed: int, epoch: int, ids: list[str]) -> dict[str, object]:
    return {"seed": seed, "epoch": epoch, "ids": ids}


CLAUSE = Clause(
    clause="S-08",
    note="Exact.",
    cases=[
        # 17:0:a 1ccb…  17:0:b 5a9f…  17:0:d 653e…  17:0:c 65d2…
        hand("seed 17 epoch 0", "order", _order(17, 0, ["a", "b", "c", "d"]), {"ids": [*"abdc"]}),
        # 17:1:d 01dd…  17:1:a 2365…  17:1:b 77f4…  17:1:c 7974…
        hand(
            "seed 17 epoch 1 is another order",
            "order",
            _order(17, 1, ["a", "b", "c", "d"]),
            {"ids": [*"dabc"]},
        ),
        hand(
            "the order of the file does not matter",
            "order",
            _order(17, 0, ["d", "c", "b", "a"]),
            {"ids": [*"abdc"]},
        ),
        # 0:0:y e74c…  0:0:x ef1a…
        hand("seed 0", "order", _order(0, 0, ["x", "y"]), {"ids": ["y", "x"]}),
        # 0:10:y 37df…  0:10:x adf3…: two digits, in decimal
        hand("epoch 10", "order", _order(0, 10, ["x", "y"]), {"ids": ["y", "x"]}),
        # …993: a 3940…  c 8678…  b 983f…; rounded to a float (…992) it would be c, b, a
        hand(
            "seed above 2^53 is not rounded",
            "order",
            _order(9007199254740993, 0, ["a", "b", "c"]),
            {"ids": ["a", "c", "b"]},
        ),
        hand("one example", "order", _order(3, 2, ["only"]), {"ids": ["only"]}),
        # composed a684…  decomposed 6a53…: no normalisation, UTF-8 bytes
        hand(
            "composed and decomposed ids differ",
            "order",
            _order(0, 0, ["\u00e9", "e\u0301"]),
            {"ids": ["e\u0301", "\u00e9"]},
        ),
        computed(
            "ids with colons, spaces, emoji and separators",
            "order",
            _order(1, 1, ["1:z", "z", " z", "z ", "\U0001f469\u200d\u2695\ufe0f", "a\u2028b", "0"]),
        ),
        computed("forty ids", "order", _order(17, 3, [f"ex{i:04d}" for i in range(40)])),
    ],
)
