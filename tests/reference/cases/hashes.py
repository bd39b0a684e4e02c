"""Cases of S-22. Hand-worked hashes: `printf 'name\\0…' | sha256sum` on the eight bytes a value."""

from typing import Any

from tests.reference.case import Case, Clause, computed, hand
from tests.reference.cases.loss import wave


def _hand(name: str, tensors: dict[str, Any], sha256: str) -> Case:
    return hand(name, "tensors_sha256", {"tensors": tensors}, {"sha256": sha256})


def _case(name: str, tensors: dict[str, Any]) -> Case:
    return computed(name, "tensors_sha256", {"tensors": tensors})


# 1.0 is 00 00 00 00 00 00 f0 3f, 2.0 is 00 … 00 40, -0.0 is 00 … 00 80
TWO = "6029d4c6009fc6e99a78da3571a1b29595fa9a5dc43a4a85a2a303e42344a109"
CASES = [
    _hand(
        "one tensor of one value",
        {"a": [1.0]},
        "dd9f235dfb0c0cb02dd3317375f016ff3d5962eee021b37286e08889bdf973db",
    ),
    _hand("two tensors, a minus zero", {"a": [1.0], "b": [2.0, -0.0]}, TWO),
    _hand("ascending order of names, whatever order they come in", {"b": [2, -0.0], "a": 1}, TWO),
    _hand(
        "no tensor",
        {},
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    _hand(
        "a tensor without entries feeds its name",
        {"e": []},
        "6b672b9a7e4feb4fd38386f90405bc0ae261413a758dd8eb2786be61df8dc27d",
    ),
    # UTF-8: ef bf bf before f0 90 80 80. In UTF-16 the second would come first
    _hand(
        "names sort by UTF-8 bytes",
        {"\U00010000": [2.0], "\uffff": [1.0]},
        "a3884612c0ee03b9da48cc82f7d68688a149df3b81dbbb5846b378c8adc99aa6",
    ),
    _case("plus zero is not minus zero", {"a": [1.0], "b": [2.0, 0.0]}),
    _case("shape does not enter", {"a": [1.0], "b": [[2.0], [-0.0]]}),
    _case("names that begin alike", {"a.b": [3.0], "a": [1.0], "a-b": [2.0], "A": [4.0]}),
    _case(
        "layers sort as text, 10 before 2",
        {f"model.layers.{i}.mlp.up_proj.weight": wave(2, 2, seed=i) for i in (0, 1, 2, 10, 11)},
    ),
    _case("integers are floats", {"a": [[1, 2, 3], [4, 5, 6]]}),
    _case("extremes", {"x": [5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 0.1]}),
    _case("a matrix in row-major order", {"w": wave(5, 7)}),
]

CLAUSE = Clause(clause="S-22", note="Exact.", cases=CASES)
