"""Rows and sketches that are missing or dead on both sides are no agreement (S-21)."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Judge, pair
from .synthetic import PARAMETERS, Documents

Row = dict[str, Any]
DEMO = Path(__file__).resolve().parents[2] / "configs" / "runs" / "clinical-demo.toml"


def keep(legs: tuple[Documents, Documents], wanted: Callable[[Row], bool]) -> None:
    for made in legs:
        made["tensors"] = [row for row in made["tensors"] if wanted(row)]


def reasons(judged: Judge, legs: tuple[Documents, Documents]) -> tuple[str, ...]:
    verdict = judged(*legs)
    assert verdict.verdict == "INCONCLUSIVE"
    return verdict.reasons


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        (
            lambda row: row["kind"] != "grad" or row["step"] == 0,
            "12 rows of tensors/ that S-21 asks for, first grad of model.embed_tokens.weight at "
            "step 4",
        ),
        (
            lambda row: row["name"] != "model.norm.weight" or row["kind"] == "init",
            "15 rows of tensors/ that S-21 asks for, first grad of model.norm.weight at step 0",
        ),
        (
            lambda row: row["name"] != "model.norm.weight" or row["kind"] != "init",
            "1 rows of tensors/ that S-21 asks for, first init of model.norm.weight at step 0",
        ),
        (
            lambda row: row["step"] == 0,
            "30 rows of tensors/ that S-21 asks for, first grad of model.embed_tokens.weight at "
            "step 7",
        ),
        (
            lambda row: row["step"] != 7,
            "30 rows of tensors/ that S-21 asks for, first grad of model.embed_tokens.weight at "
            "step 7",
        ),
    ],
)
def test_rows_that_both_legs_lack_are_no_agreement(
    judged: Judge, wanted: Callable[[Row], bool], missing: str
) -> None:
    legs = pair()
    keep(legs, wanted)
    assert reasons(judged, legs) == (f"torch lacks {missing}", f"jax lacks {missing}")


def test_the_config_knows_the_rhythm_when_no_row_tells_it(judged: Judge, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    text = DEMO.read_text("utf-8")
    config.write_text(re.sub("tensors_every = [0-9]+", "tensors_every = 20", text), "utf-8")
    legs = pair(num_steps=21)
    keep(legs, lambda row: row["kind"] == "init")
    assert judged(*legs).verdict == "AGREE"  # tensors_every = 0, for all that is known
    for made in legs:
        made["header"]["config_sha256"] = hashlib.sha256(config.read_bytes()).hexdigest()
        made["header"]["provenance"]["config_path"] = str(config)
    found = reasons(judged, legs)
    assert "torch lacks 60 rows of tensors/ that S-21 asks for" in found[0]  # steps 0 and 20


def test_a_frozen_tensor_owes_its_parameters_alone(judged: Judge) -> None:
    legs = pair()
    for made in legs:
        made["header"]["facts"]["parameters"]["model.norm.weight"]["trainable"] = False
    keep(legs, lambda row: row["name"] != "model.norm.weight" or row["kind"] in ("init", "param"))
    assert judged(*legs).verdict == "AGREE"


def test_facts_that_leave_parameters_out_are_no_agreement(judged: Judge) -> None:
    legs = pair()
    for made in legs:
        del made["header"]["facts"]["parameters"]["model.norm.weight"]
    assert "torch names parameters of 148 entries and counts 152" in judged(*legs).reasons


def test_sketches_of_zeros_under_a_norm_are_dead(judged: Judge) -> None:
    legs = pair()
    for made in legs:
        for row in made["tensors"]:
            row["sketch"] = [0.0] * 64
    assert reasons(judged, legs)[0].startswith(
        "torch has 96 sketches that cannot be of their tensors, first init of "
        "model.embed_tokens.weight at step 0: length 0 under a norm of"
    )


@pytest.mark.parametrize("factor", [10.0, 0.1, 1.001])
def test_a_norm_out_of_reach_of_its_sketch_is_no_agreement(judged: Judge, factor: float) -> None:
    legs = pair()
    for made in legs:
        row = next(r for r in made["tensors"] if r["kind"] == "m" and r["step"] == 4)
        row["norm"] *= factor
    assert (
        "torch has 1 sketches that cannot be of their tensors, first m of"
        in (reasons(judged, legs)[0])
    )


def test_a_tensor_of_more_than_64_entries_has_a_norm_within_a_factor_of_8(judged: Judge) -> None:
    for factor, verdict in ((0.2, "AGREE"), (5.0, "AGREE"), (0.1, "INCONCLUSIVE")):
        legs = large(factor)
        assert judged(*legs).verdict == verdict, factor
    # Short sketches are told by the median row of their kind.
    assert (
        "sketches of kind grad whose length is 0.1 of the norm in the median"
        in (reasons(judged, large(10.0))[0])
    )


def large(factor: float) -> tuple[Documents, Documents]:
    """Two legs whose tensors all have 640 entries, with gradient norms that are off."""
    legs = pair()
    for made in legs:
        facts = made["header"]["facts"]
        for entry in facts["parameters"].values():
            entry["shape"] = [10, 64]
        facts["num_parameters"] = facts["num_trainable_parameters"] = 640 * len(PARAMETERS)
        for row in made["tensors"]:
            row["shape"] = [10, 64]
            if row["kind"] == "grad":
                row["norm"] *= factor
    return legs


def test_the_bound_holds_for_the_sketches_of_s_21() -> None:
    """The worst case for a sketch: all entries of one bucket, of one size."""
    rng = np.random.default_rng(5)
    lengths = []
    for index in range(400):
        entries = np.arange(256) * 64  # a hot column of a matrix of width 64
        key = int.from_bytes(hashlib.sha256(f"tensor {index}".encode()).digest()[:4], "big")
        z = (entries * 0x9E3779B1 & 0xFFFFFFFF) ^ key
        z = ((z ^ z >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
        z = ((z ^ z >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
        signs = np.where((z ^ z >> 16) >> 31, -1.0, 1.0)
        values = rng.uniform(0.9, 1.1, 256)
        lengths.append(abs(signs @ values) / math.sqrt(float(values @ values)))
    assert max(lengths) < 8
    assert min(lengths) < 1 / 8  # so a short sketch alone is no sign
    assert np.median(lengths) > 1 / 8
