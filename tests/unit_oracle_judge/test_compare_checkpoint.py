"""`checkpoint/` is what a fine-tune delivers: it must hold what `done.json` says was trained."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from oracle.compare_checkpoint import tensors_sha256
from oracle.contract import Verdict
from oracle.safetensors_header import read_header
from oracle.trace import read_trace
from oracle.verdict import judge

from .conftest import Judge, floor_of, pair
from .synthetic import NAMES, moments, safetensors, set_hash, weights, write

Legs = tuple[Path, Path]


@pytest.fixture
def legs(tmp_path: Path) -> Legs:
    a, b = (write(tmp_path / name, made) for name, made in zip(NAMES, pair(), strict=True))
    return a, b


def verdict_of(legs: Legs, run: str | None = "run-1") -> Verdict:
    a, b = map(read_trace, legs)
    floor = floor_of(legs[0].parent, a, b)
    return judge(a, b, purpose="cross", names=NAMES, tolerances=None, floor=floor, run=run)


def test_parameters_of_before_the_last_update_are_a_divergence_of_that_leg(legs: Legs) -> None:
    stale = weights(7)
    stale["model.norm.weight"] = stale["model.norm.weight"] - 1e-9
    (legs[0] / "checkpoint" / "model.safetensors").write_bytes(safetensors(stale))
    verdict = verdict_of(legs)
    assert (verdict.verdict, verdict.exit_code) == ("DIVERGED", 1)
    (found,) = verdict.divergences
    assert (found.phase, found.step, found.field) == ("params", 7, "checkpoint")
    assert found.clause == "S-13"
    assert (found.a, found.b) == ("not what was trained", "as it should be")
    assert found.hint == (
        f"torch: checkpoint/ has the hash {set_hash(stale)[:12]} and done.json states "
        f"{set_hash(weights(7))[:12]}"
    )
    params = next(p for p in verdict.phases if p.phase == "params")
    assert (params.status, params.first_step) == ("diverged", 7)
    assert params.agreement is not None
    assert params.agreement < 1


def test_a_permuted_tensor_in_the_other_leg_names_that_leg(legs: Legs) -> None:
    turned = weights(7)
    turned["model.layers.0.self_attn.q_proj.weight"] = np.ascontiguousarray(
        turned["model.layers.0.self_attn.q_proj.weight"].T
    )
    (legs[1] / "checkpoint" / "model.safetensors").write_bytes(safetensors(turned))
    (found,) = verdict_of(legs).divergences
    assert (found.a, found.b) == ("as it should be", "not what was trained")
    assert found.hint is not None
    assert found.hint.startswith("jax: checkpoint/ has the hash")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"cut", "it is truncated or no safetensors file"),
        (safetensors({"model.norm.weight": np.ones(4)}), "checkpoint/ lacks model.embed_tokens"),
        (
            safetensors(weights(7) | {"extra": np.ones(4)}),
            "checkpoint/ has an unknown tensor extra",
        ),
    ],
)
def test_a_checkpoint_of_other_tensors_or_of_none_is_told(
    legs: Legs, content: bytes, hint: str
) -> None:
    (legs[0] / "checkpoint" / "model.safetensors").write_bytes(content)
    (found,) = verdict_of(legs).divergences
    assert hint in str(found.hint)


def test_shards_and_a_tied_head_are_read(legs: Legs) -> None:
    folder, tensors = legs[0] / "checkpoint", weights(7)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    places = {name: f"{'ab'[place % 2]}.safetensors" for place, name in enumerate(names)}
    for shard in set(places.values()):
        held = {name: tensors[name] for name in names if places[name] == shard}
        (folder / shard).write_bytes(safetensors(held))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert verdict_of(legs).verdict == "AGREE"


def test_another_tokenizer_or_no_template_in_a_checkpoint_is_told(legs: Legs) -> None:
    (legs[0] / "checkpoint" / "tokenizer.json").write_text("{}")
    (legs[1] / "checkpoint" / "chat_template.jinja").unlink()
    found = {entry.field: entry.hint for entry in verdict_of(legs).divergences}
    assert found.keys() == {"checkpoint/tokenizer.json", "checkpoint/chat_template.jinja"}
    assert found["checkpoint/chat_template.jinja"] == "jax: checkpoint/ lacks chat_template.jinja"
    assert "torch: checkpoint/tokenizer.json has the hash" in str(
        found["checkpoint/tokenizer.json"]
    )


def test_a_leg_of_a_run_owes_its_checkpoint_and_a_copied_trace_does_not(legs: Legs) -> None:
    shutil.rmtree(legs[1] / "checkpoint")
    sentence = "jax has no checkpoint/, so the weights that it delivers were not checked (S-13)"
    run = verdict_of(legs)
    assert (run.verdict, run.reasons) == ("INCONCLUSIVE", (sentence,))
    after = verdict_of(legs, run=None)
    assert (after.verdict, after.warnings) == ("AGREE", (sentence,))


def test_a_trace_without_final_hashes_is_no_agreement(judged: Judge) -> None:
    legs = pair()
    for made in legs:
        made["final"] = None
    verdict = judged(*legs)
    assert verdict.verdict == "INCONCLUSIVE"
    assert "torch states no hashes of its final tensors, which are required" in verdict.reasons


@pytest.mark.parametrize(("dtype", "kind"), [("F64", "<f8"), ("F32", "<f4"), ("F16", "<f2")])
def test_a_hash_is_of_the_values_widened_to_float64(tmp_path: Path, dtype: str, kind: str) -> None:
    held = {"b": np.arange(6.0).reshape(2, 3) / 3, "a": np.zeros(0)}
    held = {name: values.astype(kind) for name, values in held.items()}
    (tmp_path / "x").write_bytes(safetensors(held, dtype))
    wide = {name: values.astype("<f8") for name, values in held.items()}
    assert tensors_sha256(read_header(tmp_path / "x")) == set_hash(wide)


def test_a_config_that_describes_another_model_is_told(legs: Legs) -> None:
    path = legs[0] / "checkpoint" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_theta": 500.0}))
    (found,) = verdict_of(legs).divergences
    assert (found.phase, found.field, found.clause) == ("params", "checkpoint/config.json", "S-13")
    assert found.hint == (
        "torch: checkpoint/config.json says rope_base 500.0 and the model that was trained has "
        "10000.0"
    )


def test_a_key_of_the_config_that_one_leg_lost_is_told(legs: Legs) -> None:
    for leg, end in zip(legs, ({"eos_token_id": 2, "dtype": "float64"}, {}), strict=True):
        path = leg / "checkpoint" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | end))
    (found,) = verdict_of(legs).divergences
    assert (found.field, found.a, found.b) == ("checkpoint/config.json:eos_token_id", "2", "absent")


def test_weights_swapped_in_after_the_last_step_are_told_though_the_footer_fits(legs: Legs) -> None:
    averaged = {name: 0.99 * values for name, values in weights(7).items()}
    (legs[0] / "checkpoint" / "model.safetensors").write_bytes(safetensors(averaged))
    done = json.loads((legs[0] / "done.json").read_text())
    done["final"]["params_sha256"] = set_hash(averaged)
    (legs[0] / "done.json").write_text(json.dumps(done))
    found = verdict_of(legs).divergences[0]
    assert (found.phase, found.step, found.field) == ("params", 7, "checkpoint")
    assert found.hint == (
        "torch: model.embed_tokens.weight in checkpoint/ is not the tensor of the last step, "
        "though done.json fits it"
    )


def test_a_last_snapshot_that_holds_m_for_v_is_told(legs: Legs) -> None:
    for leg in legs:
        (leg / "snapshots").mkdir()
        held = {f"param/{name}": values for name, values in weights(7).items()}
        for kind in "mv":
            held |= {f"{kind}/{name}": values for name, values in moments(7)[kind].items()}
        (leg / "snapshots" / "00000008.safetensors").write_bytes(safetensors(held))
    assert verdict_of(legs).verdict == "AGREE"
    held |= {f"v/{name}": values for name, values in moments(7)["m"].items()}
    (legs[1] / "snapshots" / "00000008.safetensors").write_bytes(safetensors(held))
    (found,) = verdict_of(legs).divergences
    assert (found.phase, found.step, found.field) == ("moments", 7, "snapshots.v")
    assert found.clause == "S-23"
    assert str(found.hint).startswith("jax: snapshots/00000008.safetensors: v has the hash")


def test_a_verdict_names_the_very_footers_that_were_judged(legs: Legs) -> None:
    for leg, record in zip(legs, verdict_of(legs).legs, strict=True):
        expected = hashlib.sha256((leg / "done.json").read_bytes()).hexdigest()
        assert record.trace_sha256 == expected
