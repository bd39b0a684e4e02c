"""A verdict as SARIF 2.1.0: a pull request shows the divergence at its config key and its clause.

A rule is a phase; a result is an independent divergence, placed at the line of the run config that
steers the phase, related to the heading of its clause in SPEC.md. Consequences are no results. A
verdict that judged nothing is a result of the rule `judged`, so that no upload shows a clean run.
Fingerprints hold for the same divergence of the same config, whatever the step's numbers are.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from oracle.config import line_of
from oracle.contract import ROOT, Divergence, Verdict, phases
from oracle.report.clause import headings, titled
from oracle.report.words import aftermath, apart, place, visible

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
SPEC = "configs/contract/SPEC.md"
PACKAGE = "cross-stack-oracle"
# The key of a run config that a reader will look at first, by phase.
KEYS = {
    "echo": "model.checkpoint",
    "order": "seed",
    "text": "data.template",
    "ids": "data.tokenizer",
    "mask": "data.mask",
    "batch": "train.micro_batch_size",
    "weights": "model.checkpoint",
    "forward": "model.attention",
    "loss": "train.accumulation_steps",
    "grad": "train.accumulation_steps",
    "grad_norm": "train.precision",
    "clip": "optimizer.clip_norm",
    "lr": "optimizer.learning_rate",
    "moments": "optimizer.beta1",
    "update": "optimizer.weight_decay",
    "params": "optimizer.weight_decay",
    "eval": "eval.every_steps",
}


def render(verdict: Verdict, config: Path | None) -> str:
    """Return the SARIF document of `verdict`; never text or ordinary ids of an example.

    `config` is the run config as a file of the repository, None when it lies elsewhere.
    """
    results = [_result(verdict, item, config) for item in verdict.divergences]
    if verdict.verdict in ("ERROR", "INCONCLUSIVE"):
        results.append(_unjudged(verdict, config))
    run = {
        "tool": {
            "driver": {
                "name": PACKAGE,
                "version": version(PACKAGE),
                "rules": _rules(),
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"ROOT": {"description": {"text": "root of the repository"}}},
        "invocations": [
            {
                "executionSuccessful": verdict.verdict in ("AGREE", "DIVERGED"),
                "exitCode": verdict.exit_code,
                "exitCodeDescription": verdict.verdict,
            }
        ],
        "results": results,
        "properties": {"verdict": verdict.verdict, "headline": visible(verdict.headline)},
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def _rules() -> list[dict[str, Any]]:
    rules = [
        {
            "id": entry.name,
            "name": entry.name.title().replace("_", ""),
            "shortDescription": {"text": f"both stacks agree in {entry.name}"},
            "fullDescription": {
                "text": f"{entry.name} "
                + ("is equal in both stacks" if entry.exact else "differs by rounding alone")
                + f" (clause {entry.clause} of {SPEC})"
            },
            # Where the repository is served is not known here, so there is no helpUri.
            "help": {
                "text": f"Clause {titled(entry.clause)} of {SPEC} decides which stack is right. "
                f"`oracle show RUN --phase {entry.name}` shows the place."
            },
            "defaultConfiguration": {"level": "error"},
            "properties": {"clause": entry.clause},
        }
        for entry in phases()
    ]
    judged = {
        "id": "judged",
        "name": "Judged",
        "shortDescription": {"text": "the run could be judged"},
        "fullDescription": {"text": "both legs ended well and every required channel was compared"},
        "help": {"text": "The sentence says what is missing; no gate passes on such a verdict."},
        "defaultConfiguration": {"level": "error"},
    }
    return [*rules, judged]


def _result(verdict: Verdict, item: Divergence, config: Path | None) -> dict[str, Any]:
    names = [leg.name for leg in verdict.legs]
    parts = [
        f"{item.phase} parts at {place(item)}: {names[0]} {item.a}, {names[1]} {item.b}.",
        f"{apart(item)}." if apart(item) else "",
        f"Hint: {item.hint}." if item.hint else "",
        f"Rule: {item.rule}.",
        f"{aftermath(verdict.consequences)}." if _is_first(verdict, item) else "",
    ]
    text = visible(" ".join(part for part in parts if part.strip(".")))
    key = "\0".join((item.phase, item.field, item.example or "", item.tensor or "", item.clause))
    return {
        "ruleId": item.phase,
        "ruleIndex": [entry.name for entry in phases()].index(item.phase),
        "level": "error",
        "message": {"text": text},
        "locations": [_location(config, _line_of_key(config, item.phase))],
        "relatedLocations": [
            {"id": 1, "message": {"text": f"clause {titled(item.clause)}"}}
            | _location(ROOT / SPEC, headings().get(item.clause, (1, ""))[0])
        ],
        "partialFingerprints": {"divergence/v1": _digest(f"{verdict.config['name']}\0{key}")},
        "properties": {"step": item.step, "clause": item.clause, "numLikeIt": item.num_like_it},
    }


def _unjudged(verdict: Verdict, config: Path | None) -> dict[str, Any]:
    sentences = [leg.error for leg in verdict.legs if leg.error] + list(verdict.reasons)
    text = visible(f"{verdict.verdict}: {' '.join(sentences) or verdict.headline}")
    return {
        "ruleId": "judged",
        "ruleIndex": len(phases()),
        "level": "error",
        "message": {"text": text},
        "locations": [_location(config, 1)],
        "partialFingerprints": {"divergence/v1": _digest(f"{verdict.config['name']}\0judged")},
    }


def _is_first(verdict: Verdict, item: Divergence) -> bool:
    return verdict.first is not None and verdict.first.id == item.id


def _location(path: Path | None, line: int) -> dict[str, Any]:
    """Return a place in a file of the repository; the contract itself where none is known."""
    path = (ROOT / SPEC if path is None else path).resolve()
    artifact = {"uri": path.as_uri()}
    if path.is_relative_to(ROOT):
        artifact = {"uri": path.relative_to(ROOT).as_posix(), "uriBaseId": "ROOT"}
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(1, line)}}
    }


def _line_of_key(config: Path | None, phase: str) -> int:
    return 1 if config is None else line_of(config.read_text("utf-8"), KEYS[phase]) or 1


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
