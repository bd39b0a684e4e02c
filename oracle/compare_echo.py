"""Phase `echo` (S-25): the facts of both headers, each differing one a divergence of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oracle.contract import Divergence
from oracle.outcome import Outcome, divergence, outcome

# Facts that count what the data gave: they part with the order of the examples (`compare_order`).
OF_THE_ORDER = ("num_examples", "steps_per_epoch")
# How the data lies in files. Under a control only its examples count, and their phases hold those.
OF_THE_FILES = ("files.train", "files.eval", "files.edge")
NUM_NAMES = 4  # names of tensors that a value shows at most


def compare_echo(
    a: Mapping[str, Any], b: Mapping[str, Any], *, control: bool = False
) -> tuple[Outcome, frozenset[str]]:
    """Compare the facts of two headers; also return the names of those that part.

    With `control` (a stack against itself under another config) data may lie in other files.
    """
    left, right = _flat(a), _flat(b)
    names = sorted((left.keys() | right.keys()) - set(OF_THE_FILES if control else ()))
    found = [
        divergence(
            "echo",
            field=f"header.facts.{name}",
            a=_shown(left.get(name)),
            b=_shown(right.get(name)),
        )
        for name in names
        if left.get(name) != right.get(name)
    ]
    parameters = _compare_parameters(a.get("parameters", {}), b.get("parameters", {}))
    num_compared = len(names) + (4 if "parameters" in a or "parameters" in b else 0)
    divergences = found + parameters
    result = outcome(
        "echo",
        num_compared=num_compared,
        num_agreeing=num_compared - len(divergences),
        divergences=divergences,
    )
    return result, frozenset(d.field.removeprefix("header.facts.") for d in divergences)


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return facts by dotted name; the map of control tokens stays one fact."""
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if name in OF_THE_ORDER or name == "parameters":
            continue
        if isinstance(value, Mapping) and name != "special_ids":
            flat |= _flat(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def _compare_parameters(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Divergence]:
    both = [name for name in a if name in b]
    found = []
    if a.keys() != b.keys():
        only_a, only_b = _names([n for n in a if n not in b]), _names([n for n in b if n not in a])
        found.append(
            _of_parameters("names", f"{len(a)} tensors{only_a}", f"{len(b)} tensors{only_b}")
        )
    shapes = [name for name in both if list(a[name]["shape"]) != list(b[name]["shape"])]
    if shapes:
        first = shapes[0]
        more = f" (and {len(shapes) - 1} more)" if len(shapes) > 1 else ""
        found.append(
            _of_parameters(
                "shape",
                f"{first} {a[first]['shape']}{more}",
                f"{first} {b[first]['shape']}{more}",
                tensor=first,
            )
        )
    for key in ("trainable", "decay"):
        if any(a[name][key] != b[name][key] for name in both):
            found.append(_of_parameters(key, *_flags(a, b, both, key)))
    return found


def _flags(
    a: Mapping[str, Any], b: Mapping[str, Any], both: Sequence[str], key: str
) -> tuple[str, str]:
    def text(leg: Mapping[str, Any], other: Mapping[str, Any]) -> str:
        count = sum(leg[name][key] for name in leg)
        alone = [name for name in both if leg[name][key] and not other[name][key]]
        return f"{count} of {len(leg)} tensors{_names(alone)}"

    return text(a, b), text(b, a)


def _names(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - NUM_NAMES} more" if len(names) > NUM_NAMES else ""
    return f", alone with {', '.join(names[:NUM_NAMES])}{more}"


def _of_parameters(key: str, a: str, b: str, tensor: str | None = None) -> Divergence:
    return divergence("echo", field=f"header.facts.parameters.{key}", a=a, b=b, tensor=tensor)


def _shown(value: Any) -> str:
    show: Callable[[Any], str] = lambda v: v[:12] if isinstance(v, str) and len(v) == 64 else str(v)  # noqa: E731
    if value is None:
        return "absent"
    if isinstance(value, Mapping):
        return f"{len(value)} control tokens: " + ", ".join(
            f"{name} {number}" for name, number in sorted(value.items(), key=lambda item: item[1])
        )
    if isinstance(value, list):
        return f"{len(value)} of {', '.join(map(show, value))}" if value else "none"
    return show(value)
