"""Words and numbers that the renderers share, and user-controlled strings made safe to show."""

from __future__ import annotations

import math
from collections.abc import Iterable

from oracle.contract import Consequence, Divergence, Verdict

POSITION_NOUNS = {"ids": "token", "mask": "token", "order": "place"}
STATUS_WORDS = {
    "agree": "agrees",
    "diverged": "diverged",
    "consequence": "consequence",
    "not_judged": "not judged",
    "not_compared": "not compared",
}


def visible(text: str) -> str:
    """Return `text` with every unprintable character spelled out.

    That covers escape sequences, bidi overrides and lone surrogates.
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def joined(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    items = list(words)
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def short(value: float | None) -> str:
    """Three significant digits, `4.2e-6`; a dash for nothing."""
    if value is None:
        return "–"
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def percent(agreeing: int, compared: int) -> str:
    """Share in percent that never rounds to `100 %` or `0 %` what is not all or nothing."""
    if compared == 0:
        return "–"
    share = 100 * agreeing / compared
    for digits in (0, 1, 2, 3):
        text = f"{share:.{digits}f}"
        if agreeing in (0, compared) or float(text) not in (0.0, 100.0):
            return f"{text} %"
    return "> 99.999 %" if share > 50 else "< 0.001 %"


def place(divergence: Divergence) -> str:
    """`step 12 · example ex0041 · token 37`: where a divergence lies, in causal order."""
    parts = [] if divergence.step is None else [f"step {divergence.step}"]
    if divergence.example is not None:
        split = "" if divergence.split in (None, "train") else f"{divergence.split} "
        parts.append(f"{split}example {visible(divergence.example)}")
    if divergence.tensor is not None:
        parts.append(f"tensor {visible(divergence.tensor)}")
    if divergence.position is not None:
        parts.append(f"{POSITION_NOUNS.get(divergence.phase, 'position')} {divergence.position}")
    if not parts or divergence.phase == "echo":
        parts.append(visible(divergence.field))
    return " · ".join(parts)


def apart(divergence: Divergence) -> str:
    """How far a numeric divergence is off against what is allowed; empty for an exact one."""
    if divergence.relative is None and divergence.absolute is None:
        return ""
    allowed = "" if divergence.allowed is None else f", allowed {short(divergence.allowed)}"
    ulps = "" if divergence.ulps is None else f" · {short(divergence.ulps)} ulps"
    absolute = short(divergence.absolute)
    return f"relative {short(divergence.relative)}{allowed} · absolute {absolute}{ulps}"


def aftermath(consequences: Iterable[Consequence]) -> str:
    """`loss and grad_norm part from step 12 on, eval from step 39 on (consequences)`, or empty."""
    groups: dict[int | None, list[str]] = {}
    for item in consequences:
        groups.setdefault(item.first_step, []).append(item.phase)
    texts = [
        joined(names)
        + ("" if number else " parts" if len(names) == 1 else " part")
        + (" as well" if step is None else f" from step {step} on")
        for number, (step, names) in enumerate(groups.items())
    ]
    return ", ".join(texts) + (" (consequences)" if texts else "")


def remedy(verdict: Verdict) -> str:
    """What a person can do about a verdict that judges nothing."""
    run = verdict.run or "RUN"
    if verdict.verdict == "ERROR":
        logs = f"; the legs' logs are in runs/{run}/logs" if verdict.run else ""
        return f"mend what the sentence names and run again{logs}"
    if any("`oracle calibrate CONFIG`" in reason for reason in verdict.reasons):
        return "oracle calibrate CONFIG measures the noise floor that the numeric phases need"
    return f"oracle show {run} lists what was compared; no gate passes on this verdict"


def next_command(verdict: Verdict) -> str:
    """The command that shows the first divergence of a stored run."""
    first = verdict.first
    assert first is not None, "nothing parted, so there is nothing to show"
    step = "" if first.step is None else f" --step {first.step}"
    run = (verdict.run or "RUN").rpartition("-")[2]  # `oracle show` takes the end of an id
    return f"oracle show {visible(run)}{step} --phase {first.phase}"
