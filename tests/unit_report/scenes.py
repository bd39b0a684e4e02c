"""Pairs of traces with a verdict on each, made by hand: what the renderers are tested on.

Texts hold a canary phrase and ordinary tokens a canary id: neither may ever be put out unrevealed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from oracle.columns import dtypes
from oracle.contract import (
    ROOT,
    Consequence,
    Divergence,
    LegRecord,
    PhaseResult,
    Verdict,
    phases,
)
from oracle.digests import digest, nothing
from oracle.floor import leg_provenance, write_floor
from oracle.report.words import place
from oracle.tokendiff import codepoints, diff, mask_diff
from oracle.trace import Trace

CANARY = "hereditary canarypox of the left ear"
CANARY_ID = 713_705
SPECIAL = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
DIGEST = "5f" * 32
EXAMPLE = 'ex0041"></script><script>alert(1)</script>'
TOLERANCES = ROOT / "configs" / "tolerances" / "float64.toml"
NUM_STEPS = 120
PARTS_AT = 12


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A verdict with the two traces that it is about."""

    verdict: Verdict
    a: Trace
    b: Trace


def header(name: str, num_steps: int, **facts: Any) -> dict[str, Any]:
    parameters = {
        f"model.layers.{k}.{w}.weight": {"shape": [128, 128], "trainable": True, "decay": True}
        for k in range(4)
        for w in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
    }
    hashes = {"train": [DIGEST], "eval": [DIGEST], "edge": [DIGEST], "template": DIGEST}
    return {
        "trace_version": "1",
        "contract": "1",
        "mode": "train",
        "nonce": "n",
        "config_sha256": DIGEST,
        "facts": {
            "seed": 17,
            "files": hashes | {"tokenizer": DIGEST, "model_config": DIGEST},
            "num_examples": {"train": 960, "eval": 64, "edge": 14},
            "special_ids": SPECIAL,
            "pad_id": 0,
            "rows_per_step": 8,
            "num_steps": num_steps,
            "parameters": parameters,
            "dtypes": {"param": "float64", "grad": "float64", "loss": "float64"},
        }
        | facts,
        "provenance": {
            "stack": f"{name}_stack",
            "code_sha256": hashlib.sha256(name.encode()).hexdigest(),
            "code_path": f"stacks/{name}_stack",
            "config_path": "configs/runs/clinical-demo.toml",
            "python": "3.11.2",
            "versions": {"torch": "2.13.0"} if name == "torch" else {"jax": "0.10.2"},
            "machine": {"system": "Linux", "processor": "x86_64", "cores": 2},
            "device": "cpu",
            "threads": 1,
            "attention": "eager",
            "compile": False,
            "started": "2026-11-30T22:00:00Z",
            "process_id": 4242,
        },
    }


def steps_frame(num_steps: int, seed: int = 3) -> pl.DataFrame:
    """A plausible run: falling noisy loss, gradient norm around 1, warm-up and cosine."""
    random = np.random.default_rng(seed)
    t = np.arange(num_steps)
    loss = 1.2 + 2.1 * np.exp(-t / (0.2 * num_steps)) + 0.12 * random.standard_normal(num_steps)
    norm = 0.8 + 1.5 * np.exp(-t / (0.1 * num_steps)) + 0.2 * random.random(num_steps)
    warm = np.minimum(1.0, (t + 1) / 10)
    rate = 3e-4 * warm * (0.55 + 0.45 * np.cos(np.pi * t / num_steps))
    every = num_steps // 3
    evaluated = [1.9 - 0.1 * k / every if (k + 1) % every == 0 else None for k in t.tolist()]
    return pl.DataFrame(
        {
            "step": t,
            "epoch": np.zeros_like(t),
            "examples": [[f"ex{8 * k + r:04d}" for r in range(8)] for k in t.tolist()],
            "batch_shape": [[2, 4, 128]] * num_steps,
            "batch_sha256": [hashlib.sha256(str(k).encode()).hexdigest() for k in t.tolist()],
            "num_tokens": random.integers(700, 1024, num_steps),
            "num_targets": random.integers(300, 600, num_steps),
            "lr": rate,
            "loss": loss,
            "grad_norm": norm,
            "clip_factor": np.minimum(1.0, 1.0 / (norm + 1e-6)),
            "param_norm": 40 + 1e-3 * t + 1e-5 * random.random(num_steps),
            "eval_loss": evaluated,
            "eval_targets": [None if e is None else 4711 for e in evaluated],
            "wall_seconds": 0.05 * t,
        },
        schema=dtypes("step"),
    )


def rounded(frame: pl.DataFrame, seed: int = 5) -> pl.DataFrame:
    """The other leg of a run that agrees: noise of some units in the last place that grows."""
    random = np.random.default_rng(seed)
    num = frame.height
    growth = np.linspace(0, 40, num) * np.finfo(np.float64).eps
    quiet = random.random(num) < 0.25
    columns = {}
    for name in ("loss", "grad_norm", "clip_factor", "param_norm"):
        noise = np.where(quiet, 0.0, random.standard_normal(num) * growth * 0.4)
        columns[name] = frame[name].to_numpy() * (1 + noise)
    return frame.with_columns(**columns)


def tokens_frame(
    text: str, ids: list[int], mask: list[int], example: str = EXAMPLE
) -> pl.LazyFrame:
    row = {
        "split": "train",
        "index": 41,
        "id": example,
        "text": text,
        "ids": ids,
        "mask": mask,
        "num_tokens_before_truncation": len(ids),
        "typed_control_tokens": 0,
    }
    return pl.DataFrame([row], schema=dtypes("token_row")).lazy()


TEXT = (
    f"<|im_start|>user\nWhat is {CANARY}?<|im_end|>\n<|im_start|>assistant\nIt is rare.<|im_end|>\n"
)
IDS = [
    1,
    *range(CANARY_ID, CANARY_ID + 30),
    2,
    198,
    1,
    *range(CANARY_ID + 40, CANARY_ID + 60),
    2,
    198,
]
MASK = [0] * 37 + [1] * 17 + [0] * 2


def trace(name: str, steps: pl.DataFrame, tokens: pl.LazyFrame, **facts: Any) -> Trace:
    return Trace(
        path=Path(f"runs/83fe/{name}"),
        header=header(name, steps.height, **facts),
        steps=steps,
        tokens=tokens,
        digests=digest(tokens, "token_row"),
        tensor_segments=[],
        reach=nothing("tensor_row"),
        done={"final": None},
    )


def results(
    parted: dict[str, str], first_step: int | None, num_steps: int
) -> tuple[PhaseResult, ...]:
    """One result a phase: `parted` gives the status of those that do not agree."""
    found = []
    for phase in phases():
        status = parted.get(phase.name, "not_compared" if phase.name == "forward" else "agree")
        num = {"facts": 78, "examples": 1038, "tensors": 228}.get(phase.unit, num_steps)
        bad = {"agree": 0, "diverged": 3, "consequence": num - 12}.get(status, num)
        compared = 0 if status in ("not_judged", "not_compared") else num
        agreeing = max(0, compared - bad)
        numeric = not phase.exact and compared > 0
        found.append(
            PhaseResult(
                phase=phase.name,
                status=status,  # type: ignore[arg-type]
                unit=phase.unit,
                num_compared=compared,
                num_agreeing=agreeing,
                agreement=agreeing / compared if compared else None,
                first_step=first_step if status in ("diverged", "consequence") else None,
                worst_relative=4.4e-15 if numeric else None,
                worst_step=min(97, num_steps - 1) if numeric else None,
                reason="parts after the first numeric divergence"
                if status == "not_judged"
                else None,
            )
        )
    return tuple(found)


def verdict(a: Trace, b: Trace, **changes: Any) -> Verdict:
    legs = tuple(
        LegRecord(
            name=t.path.name,
            stack=t.header["provenance"]["stack"],
            trace=str(t.path),
            code_sha256=t.header["provenance"]["code_sha256"],
            versions=t.header["provenance"]["versions"],
        )
        for t in (a, b)
    )
    num = a.steps.height
    base: dict[str, Any] = {
        "verdict": "AGREE",
        "purpose": "cross",
        "mode": "train",
        "headline": f"torch and jax agree on all {num} steps: every exact phase is equal and the "
        "loss stays within 4.4e-15, 30 times under what the floor allows",
        "run": "83fe",
        "created": "2026-11-30T22:30:00Z",
        "config": {
            "name": "clinical-demo",
            "sha256": DIGEST,
            "precision": "float64",
            "num_steps": num,
        },
        "legs": legs,
        "tolerances": {
            "file": "configs/tolerances/float64.toml",
            "sha256": hashlib.sha256(TOLERANCES.read_bytes()).hexdigest(),
        },
        "floor": None,
        "first": None,
        "divergences": (),
        "consequences": (),
        "phases": results({}, None, num),
        "reasons": (),
        "warnings": (),
        "summary": {
            "num_steps": num,
            "num_examples": 1038,
            "num_tokens": 103_512,
            "mean_relative_loss_difference": 3.1e-16,
            "max_relative_loss_difference": 4.4e-15,
            "max_relative_grad_norm_difference": 5.2e-15,
        },
    }
    return Verdict(**(base | changes))


def agree(num_steps: int = NUM_STEPS, folder: Path | None = None) -> Scene:
    frame = steps_frame(num_steps)
    tokens = tokens_frame(TEXT, IDS, MASK)
    a, b = trace("torch", frame, tokens), trace("jax", rounded(frame), tokens)
    floor = None if folder is None else floor_of(folder, a, b)
    return Scene(verdict=verdict(a, b, floor=floor), a=a, b=b)


def floor_of(folder: Path, a: Trace, b: Trace) -> dict[str, Any]:
    """A floor that rises with the step, in a file; returns what a verdict says of it."""
    num = a.steps.height
    places = np.unique(np.geomspace(1, num - 1, 25).astype(int)).tolist()
    rises = {
        field: [[k, 4e-16 + size * k / num] for k in places]
        for field, size in (
            ("steps.loss", 6e-15),
            ("steps.grad_norm", 9e-15),
            ("steps.clip_factor", 9e-15),
            ("steps.param_norm", 8e-15),
        )
    }
    provenance = {
        "config_sha256": DIGEST,
        "legs": {t.header["provenance"]["stack"]: leg_provenance(t.header) for t in (a, b)},
    }
    path = write_floor(
        folder,
        name="clinical-demo",
        provenance=provenance,
        num_steps=num,
        rises={t.header["provenance"]["stack"]: rises for t in (a, b)},
        contributions={},
    )
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": str(path), "sha256": sha256, "provenance": provenance}


AFTER = ("batch", "loss", "grad", "grad_norm", "clip", "moments", "update", "params", "eval")
WHERE: dict[str, Any] = {"step": PARTS_AT, "split": "train", "example": EXAMPLE}


def parted(phase: str, scene: Scene, first: Divergence, *more: Divergence) -> Scene:
    """A verdict DIVERGED in `phase`, everything later a consequence."""
    names = [p.name for p in phases()]
    after = [name for name in AFTER if names.index(name) > names.index(phase)]
    judged = phase in ("text", "ids", "mask")
    status = "consequence" if judged else "not_judged"
    changes = {phase: "diverged"} | dict.fromkeys(after, status)
    if phase == "text":
        changes |= {"ids": "consequence", "mask": "consequence"}
    changes |= {item.phase: "diverged" for item in more}
    headline = f"torch and jax part in {phase} at {place(first).replace(' · ', ', ')}"
    found = replace(
        scene.verdict,
        verdict="DIVERGED",
        headline=headline,
        first=first,
        divergences=(first, *more),
        consequences=tuple(
            Consequence(phase=name, first_step=PARTS_AT, num=108, because=phase)
            for name in after
            if judged
        ),
        phases=results(changes, PARTS_AT, scene.a.steps.height),
    )
    return replace(scene, verdict=found)


def perturbed(scene: Scene, name: str = "loss") -> pl.DataFrame:
    """The second leg's steps, parting for good from PARTS_AT on."""
    frame = scene.b.steps
    late = pl.col("step") >= PARTS_AT
    drift = 1 + 2e-3 * (1 + (pl.col("step") * 7 % 5))
    names = ["loss", "grad_norm"] if name == "loss" else [name]
    return frame.with_columns(
        pl.when(late).then(pl.col(n) * drift).otherwise(pl.col(n)).alias(n) for n in names
    )


RATE = Divergence(
    id="d9",
    phase="lr",
    step=40,
    field="steps.lr",
    a="0.0002598076211353316",
    b="0.0002597",
    absolute=1.07e-7,
    relative=4.1e-4,
    ulps=2.0e12,
    allowed=1.8e-15,
    rule="configs/tolerances/float64.toml: steps.lr: at most 8 units in the last place",
    clause="S-17",
    hint="one leg is a step ahead in the schedule",
)


def mask(folder: Path | None = None) -> Scene:
    scene = agree(folder=folder)
    other = MASK.copy()
    other[37:40] = [0, 0, 0]
    b = replace(scene.b, steps=perturbed(scene), tokens=tokens_frame(TEXT, IDS, other))
    first = Divergence(
        id="d1",
        phase="mask",
        **WHERE,
        position=37,
        field="tokens.mask",
        a="target",
        b="ignored",
        rule="phases.toml: mask is exact",
        clause="S-06",
        hint="the mask is shifted by three tokens: the turn's header counts as generated",
        num_like_it=2,
        diff=mask_diff(np.array(MASK), np.array(other)),
    )
    return parted("mask", replace(scene, b=b), first, RATE)


def ids(folder: Path | None = None) -> Scene:
    scene = agree(folder=folder)
    other = [0, *IDS[:20], CANARY_ID + 99, *IDS[21:]]
    b = replace(scene.b, steps=perturbed(scene), tokens=tokens_frame(TEXT, other, [0, *MASK]))
    first = Divergence(
        id="d1",
        phase="ids",
        **WHERE,
        position=0,
        field="tokens.ids",
        a="<|im_start|>",
        b="<|endoftext|>",
        rule="phases.toml: ids is exact",
        clause="S-05",
        hint="jax puts a beginning-of-text token before the text",
        diff=diff(np.array(IDS), np.array(other)),
    )
    return parted("ids", replace(scene, b=b), first)


def text(folder: Path | None = None) -> Scene:
    scene = agree(folder=folder)
    other = TEXT.replace("\nIt is", "\n\n\tIt is").replace("rare.", "rare")
    changed = [*IDS[:35], CANARY_ID + 98, *IDS[36:]]
    b = replace(scene.b, steps=perturbed(scene), tokens=tokens_frame(other, changed, MASK))
    spans = diff(codepoints(TEXT), codepoints(other))
    first = Divergence(
        id="d1",
        phase="text",
        **WHERE,
        field="tokens.text",
        a=f"{len(TEXT)} characters, differs at {spans[0]['a'][1]}",
        b=f"{len(other)} characters, differs at {spans[0]['a'][1]}",
        rule="phases.toml: text is exact",
        clause="S-03",
        hint="jax keeps a line end that the template trims",
        num_like_it=959,
        diff=spans,
    )
    return parted("text", replace(scene, b=b), first)


def number(name: str, phase: str, clause: str, folder: Path | None) -> Scene:
    scene = agree(folder=folder)
    steps = perturbed(scene, name)
    a, b = (float(frame[name][PARTS_AT]) for frame in (scene.a.steps, steps))
    first = Divergence(
        id="d1",
        phase=phase,
        step=PARTS_AT,
        field=f"steps.{name}",
        a=repr(a),
        b=repr(b),
        absolute=abs(a - b),
        relative=abs(a - b) / max(abs(a), abs(b)),
        ulps=2.4e13,
        allowed=1e-13,
        rule=f"configs/tolerances/float64.toml: steps.{name}: 10 x floor, at most 1e-06",
        clause=clause,
    )
    return parted(phase, replace(scene, b=replace(scene.b, steps=steps)), first)


def loss(folder: Path | None = None) -> Scene:
    return number("loss", "loss", "S-14", folder)


def grad_norm(folder: Path | None = None) -> Scene:
    return number("grad_norm", "grad_norm", "S-15", folder)


SCENES = {
    "agree": agree,
    "text": text,
    "ids": ids,
    "mask": mask,
    "loss": loss,
    "grad_norm": grad_norm,
}
