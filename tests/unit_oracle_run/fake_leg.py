"""A leg that only pretends to train: S-26 from the outside, numbers from a formula, no package.

fake_leg.py NAME BEHAVIOUR train|render --config … ; a behaviour goes wrong in one way:

good        ends well                        crash     exits with 1 and no error.json after step 1
bad-input   exits with 2 and error.json      hang      writes nothing more after step 1
stubborn    hangs and ignores SIGTERM        killed    kills itself with SIGKILL after step 1
killed-once killed, but not when resumed     garbage   prints bytes that are no text, ends well
no-footer   exits with 0 without done.json   nonce     writes another nonce
cut         cuts the last line of steps      full      cannot write: files may not grow (disk full)
slow        takes half a second a step           child     leaves a child behind that never ends
leftover    puts an old trace there, crashes  nan      a loss that is not a number
chatter     prints 2 MB of warnings in a second
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DTYPES = ("param", "grad", "moment", "activation", "logits", "loss")
SPLITS = ("train", "eval", "edge")
stop = False


@dataclass(frozen=True, kw_only=True)
class Options:
    name: str
    behaviour: str
    mode: str
    config: Path
    root: Path
    out: Path
    nonce: str
    resume: bool


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def listing(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"sha256": digest(content), "num_bytes": len(content)}


def header(options: Options, config: dict[str, Any], counts: dict[str, int]) -> dict[str, Any]:
    data, root = config["data"], options.root
    sizes = ("hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads")
    model = dict.fromkeys((*sizes, "head_dim"), 8)
    facts: dict[str, Any] = {
        "seed": config["seed"],
        "files": {s: [digest((root / f).read_bytes()) for f in data[s]] for s in SPLITS}
        | {key: digest((root / data[key]).read_bytes()) for key in ("template", "tokenizer")},
        "num_examples": counts,
        "special_ids": {"<pad>": 256, "<end>": 257},
        "pad_id": 256,
    }
    if options.mode == "train":
        facts["files"] |= {"model_config": digest(b"m"), "weights": {"model.safetensors": "0" * 64}}
        facts |= {
            "rows_per_step": 2,
            "steps_per_epoch": 3,
            "num_steps": config["train"]["num_steps"],
            "parameters": {"w": {"shape": [2], "trainable": True, "decay": True}},
            "num_parameters": 2,
            "num_trainable_parameters": 2,
            "model": model
            | {"vocab_size": 260, "rope_base": 1e4, "rms_norm_eps": 1e-5}
            | {"tied": True},
            "optimizer": {"name": "adamw", "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}
            | {"weight_decay": 0.0},
            "dtypes": dict.fromkeys(DTYPES, "float64"),
        }
    nonce = "of-another-run" if options.behaviour == "nonce" else options.nonce
    return {
        "trace_version": "1",
        "contract": "1",
        "mode": options.mode,
        "nonce": nonce,
        "config_sha256": digest(options.config.read_bytes()),
        "facts": facts,
        "provenance": {
            "stack": options.name,
            "code_sha256": digest(options.name.encode()),
            "code_path": str(Path(__file__).parent),
            "config_path": str(options.config),
            "python": "3.11.0",
            "versions": {"fake": "1"},
            "machine": {"system": "Linux", "processor": "x", "cores": 1},
            "device": "cpu",
            "threads": 1,
            "attention": "eager",
            "compile": False,
            "started": "2026-01-02T03:04:05Z",
            "process_id": os.getpid(),
        },
    }


def token_rows(options: Options, config: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for split in SPLITS:
        content = b"".join((options.root / f).read_bytes() for f in config["data"][split])
        for index, line in enumerate(content.splitlines()):
            example = json.loads(line)
            text = "".join(message["content"] for message in example["messages"])
            row = {"split": split, "index": index, "id": example["id"], "text": text}
            row |= {"ids": list(text.encode()), "mask": [0] * 5 + [1] * (len(text.encode()) - 5)}
            row |= {"num_tokens_before_truncation": len(text.encode()), "typed_control_tokens": 0}
            rows.append(row)
    return rows


def step_row(t: int, behaviour: str) -> dict[str, Any]:
    loss: Any = 2.0 / (t + 1)
    return {
        "step": t,
        "epoch": 0,
        "examples": ["t0", "t1"],
        "batch_shape": [1, 2, 12],
        "batch_sha256": digest(str(t).encode()),
        "num_tokens": 20,
        "num_targets": 10,
        "lr": 1e-3,
        "loss": "NaN" if behaviour == "nan" and t > 0 else loss,
        "grad_norm": 1.0 + t,
        "clip_factor": 1.0 / (1.0 + t + 1e-6),
        "param_norm": 3.0 + t / 10,
        "eval_loss": None,
        "eval_targets": None,
        "wall_seconds": 0.01 * t,
    }


def tensor_row(name: str) -> dict[str, Any]:
    return {
        "step": 0,
        "kind": "init",
        "name": name,
        "shape": [2],
        "norm": 1.0,
        "mean": 0.5,
        "max_abs": 1.0,
        "sketch": [0.6, 0.8] + [0.0] * 62,
        "sha256": digest(name.encode()),
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def checkpoint(options: Options, config: dict[str, Any]) -> str:
    """Write `checkpoint/`; returns the hash of the final parameters."""
    folder = options.out / "checkpoint"
    folder.mkdir(exist_ok=True, mode=0o700)
    values = struct.pack("<2d", 3.0, 4.0)
    head = json.dumps({"w": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + values)
    for name, key in (("tokenizer.json", "tokenizer"), ("chat_template.jinja", "template")):
        (folder / name).write_bytes((options.root / config["data"][key]).read_bytes())
    return digest(b"w\0" + values)


def finish(options: Options, counts: dict[str, int], num_steps: int, params: str = "") -> None:
    out = options.out
    found = [p.relative_to(out) for p in sorted(out.rglob("*.json*")) if p.is_file()]
    names = [str(p) for p in found if p.parts[0] != "checkpoint"]
    nonce = "of-another-run" if options.behaviour == "nonce" else options.nonce
    hashes = {f"{k}_sha256": digest(k.encode()) for k in ("m", "v")} | {"params_sha256": params}
    done = {
        "nonce": nonce,
        "mode": options.mode,
        "num_steps": num_steps,
        "num_examples": counts,
        "files": {name: listing(out / name) for name in names},
        "final": hashes if options.mode == "train" else None,
    }
    if options.behaviour == "cut":
        path = out / "steps.jsonl"
        path.write_bytes(path.read_bytes()[:-20])
    (out / "done.tmp").write_text(json.dumps(done))
    (out / "done.tmp").rename(out / "done.json")


def fail(options: Options, kind: str, message: str) -> None:
    document = {"nonce": options.nonce, "kind": kind, "message": message}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "error.json").write_text(json.dumps(document))
    print(message, file=sys.stderr)


def misbehave(options: Options, t: int) -> None:
    """Go wrong after step `t`, when that is what this leg does."""
    behaviour = options.behaviour
    if behaviour == "slow":
        time.sleep(0.5)
    if behaviour == "chatter":
        for number in range(50_000):
            print(f"warning {number}", file=sys.stderr)
        time.sleep(0.3)
        if t == 3:
            print("the end", file=sys.stderr)
    if t != 1:
        return
    if behaviour == "crash":
        wait_for_the_other(options)
        print("Traceback: patient Smith said", file=sys.stderr)
        sys.exit(1)
    if behaviour == "killed-once" and not options.resume:
        wait_for_the_footer_of_the_good_leg(options)
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour in ("hang", "stubborn"):
        time.sleep(600)


def wait_for_the_footer_of_the_good_leg(options: Options) -> None:
    """Until the leg named good is done: what is done must survive a resume."""
    footer = options.out.parent / "good" / "done.json"
    deadline = time.monotonic() + 10.0
    while not footer.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def wait_for_the_other(options: Options) -> None:
    """Until the other leg has made a step: a leg that is still starting cannot end in order."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        others = set(options.out.parent.glob("*/steps.jsonl")) - {options.out / "steps.jsonl"}
        if any(path.stat().st_size for path in others):
            return
        time.sleep(0.02)


def train(options: Options) -> int:
    config = tomllib.loads(options.config.read_text("utf-8"))
    out = options.out
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    rows = token_rows(options, config)
    counts = {split: sum(row["split"] == split for row in rows) for split in SPLITS}
    write(out / "header.json", [header(options, config, counts)])
    write(out / "tokens" / "00000.jsonl", rows)
    if options.mode == "render":
        finish(options, counts, 0)
        return 0
    write(out / "tensors" / "00000000.jsonl", [tensor_row("w")])
    path = out / "steps.jsonl"
    begin = len(path.read_bytes().splitlines()) if path.exists() else 0
    num_steps = config["train"]["num_steps"]
    with path.open("a") as stream:
        for t in range(begin, num_steps):
            stream.write(json.dumps(step_row(t, options.behaviour)) + "\n")
            stream.flush()
            misbehave(options, t)
            if stop:
                fail(options, "interrupted", f"stopped after step {t}; resume with --resume.")
                return 130
    if options.behaviour != "no-footer":
        finish(options, counts, num_steps, checkpoint(options, config))
    return 0


def main(argv: list[str]) -> int:
    name, behaviour, mode, *rest = argv
    given = dict(zip(rest[::2], rest[1::2], strict=False))
    if mode == "vectors":
        return vectors(Path(given["--in"]), Path(given["--out"]), behaviour)
    options = Options(
        name=name,
        behaviour=behaviour,
        mode=mode,
        config=Path(given["--config"]),
        root=Path(given["--root"]),
        out=Path(given["--out"]),
        nonce=given["--nonce"],
        resume="--resume" in rest,
    )
    prepare(options)
    if behaviour == "bad-input":
        fail(options, "bad_input", "train.jsonl:3: no messages;\nadd them.")
        return 2
    if options.out.is_dir() and any(options.out.iterdir()) and not options.resume:
        fail(options, "bad_input", f"{options.out} is not empty.")
        return 2
    if behaviour == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return train(options)


def prepare(options: Options) -> None:
    def on_term(number: int, frame: object) -> None:
        global stop
        stop = True

    behaviour = options.behaviour
    ignored = behaviour == "stubborn"
    if behaviour != "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN if ignored else on_term)
    if behaviour == "garbage":
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.buffer.write(os.urandom(200_000))
                stream.flush()
    if behaviour == "child":
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        (options.out.parent / "child.pid").write_text(str(child.pid))
    if behaviour == "leftover":  # what a stack that does not clean up finds in its place
        earlier = Options(**{**vars(options), "behaviour": "good", "nonce": "yesterday"})
        train(earlier)
        sys.exit(1)


def vectors(source: Path, out: Path, behaviour: str) -> int:
    """Answers from the file itself; `crash` gives none, `nan` a wrong one."""
    if behaviour == "crash":
        print("no such clause", file=sys.stderr)
        return 1
    answers = []
    for case in json.loads(source.read_text())["cases"]:
        if case["expected"] == {"error": True}:
            answers.append({"name": case["name"], "error": "refused"})
        else:
            output = {"lr": [99.0]} if behaviour == "nan" else case["expected"]
            answers.append({"name": case["name"], "output": output})
    out.write_text(json.dumps({"answers": answers}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
