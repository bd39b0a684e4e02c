"""Command line of the stack: `train`, `render`, `replay` and `vectors` (S-26, S-29).

Exit codes: 0 done, 2 bad input, 130 stopped by a signal, 1 anything else. A failure is one
sentence on the last line of stderr and in `error.json`; ORACLE_DEBUG=1 shows the traceback.
"""

import argparse
import math
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from stacks.torch_stack.errors import BadInput, Failed, Interrupted
from stacks.torch_stack.host import CONDITIONS, prepare, run_child

if TYPE_CHECKING:
    from stacks.torch_stack.leg import Leg

_ANCHOR_SECONDS = 600.0
_DONE, _FAILED, _BAD_INPUT, _INTERRUPTED = 0, 1, 2, 130


class _Occupied(BadInput):
    """--out holds a trace already."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"S-26: {self.prog}: {message}; see --help")


class _Stop:
    """Remembers the first signal that asked to stop."""

    def __init__(self) -> None:
        self.name: str | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._received)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self.name = self.name or signal.Signals(number).name


def main(arguments: list[str], is_child: bool = False) -> int:
    """Run one verb; returns the exit code. A child does what its parent was asked to do."""
    os.umask(0o077)  # directories 0700, files 0600 (S-24)
    stop = _Stop()
    options: argparse.Namespace | None = None
    try:
        options = _parse(arguments)
        method = getattr(options, "host", None)
        if method in ("spawn", "fork") and not is_child:
            return run_child(method, arguments)
        _run(options, stop)
    except BadInput as error:
        return _fail(options, _BAD_INPUT, "bad_input", str(error), error)
    except Failed as error:
        return _fail(options, _FAILED, "failed", str(error), error)
    except Interrupted as error:
        return _fail(options, _INTERRUPTED, "interrupted", str(error), error)
    except Exception as error:  # noqa: BLE001 - the outermost frame: S-26 gives it a code
        return _fail(options, _FAILED, "failed", _place(error), error)
    return _DONE


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="torch_stack", description=__doc__, allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("train", "render", "replay"):
        options = verbs.add_parser(verb, allow_abbrev=False)
        for name in ("config", "root", "out"):
            options.add_argument(f"--{name}", type=Path, required=True)
        options.add_argument("--nonce", required=True)
        if verb == "train":
            options.add_argument("--resume", action="store_true")
            options.add_argument("--no-trace", action="store_true")
            options.add_argument("--anchors", type=Path)
            options.add_argument("--anchor-seconds", type=seconds)
            options.add_argument("--host", choices=CONDITIONS)
        if verb == "replay":
            options.add_argument("--step", type=int, required=True)
            options.add_argument("--from", dest="sources", action="append", required=True)
            for name in ("batches", "rates", "gradients"):
                options.add_argument(f"--{name}", type=Path)
            options.add_argument("--export", action="store_true")
    options = verbs.add_parser("vectors", allow_abbrev=False)
    options.add_argument("--in", dest="input", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


def seconds(text: str) -> float:
    """A duration that an option gives."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


def _run(options: argparse.Namespace, stop: _Stop) -> None:
    from stacks.torch_stack.runtime import prepare_process

    if options.verb == "vectors":
        prepare_process(1)
        from stacks.torch_stack.vectors import answer_file

        answer_file(options.input, options.out)
        return
    if not options.nonce:
        raise BadInput("S-26: --nonce is empty; give any text")
    prepare(getattr(options, "host", None))
    resume = getattr(options, "resume", False)
    _open_directory(options.out, resume)
    if getattr(options, "anchor_seconds", None) is not None and options.anchors is None:
        raise BadInput("S-30: --anchor-seconds was given without --anchors; name the folder too")
    from stacks.torch_stack.config import load_config

    config = load_config(options.config, options.root)
    prepare_process(config.runtime.threads)
    from stacks.torch_stack import leg
    from stacks.torch_stack.anchors import Following

    following = None
    if getattr(options, "anchors", None) is not None:
        patience = _ANCHOR_SECONDS if options.anchor_seconds is None else options.anchor_seconds
        following = Following(folder=options.anchors, seconds=patience)
    work = leg.Leg(
        config=config,
        out=options.out,
        nonce=options.nonce,
        traced=not getattr(options, "no_trace", False),
        stop_signal=lambda: stop.name,
        following=following,
        host=getattr(options, "host", None),
    )
    if options.verb == "replay":
        _replay(work, options)
    else:
        (leg.train if options.verb == "train" else leg.render)(work)


def _replay(work: "Leg", options: argparse.Namespace) -> None:
    from stacks.torch_stack.replay import Request, replay

    request = Request(
        step=options.step,
        sources=tuple(options.sources),
        batches=options.batches,
        rates=options.rates,
        gradients=options.gradients,
        exports=options.export,
    )
    replay(work, request)


def _open_directory(out: Path, resume: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not resume:
            held = any((out / name).exists() for name in ("header.json", "done.json"))
            raise (_Occupied if held else BadInput)(
                f"S-26: --out {out} is not empty and --resume was not given; name a new directory"
            )
        out.chmod(0o700)
        for stale in ("done.json", "error.json"):
            (out / stale).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(
            f"S-26: --out {out} cannot be a directory of this leg: {error.strerror}"
        ) from error


def _fail(
    options: argparse.Namespace | None, code: int, kind: str, message: str, error: Exception
) -> int:
    if os.environ.get("ORACLE_DEBUG") == "1":
        traceback.print_exception(error)
    sentence = " ".join(message.split())
    is_leg = options is not None and options.verb != "vectors" and options.nonce
    # A trace that made us refuse --out is another leg's: it gets no error.json of ours
    if options is not None and is_leg and not isinstance(error, _Occupied):
        _write_error(options.out, options.nonce, kind, sentence)
    print(sentence, file=sys.stderr, flush=True)
    return code


def _write_error(out: Path, nonce: str, kind: str, message: str) -> None:
    from stacks.torch_stack.documents import write_json

    try:
        write_json(out / "error.json", {"nonce": nonce, "kind": kind, "message": message})
    except OSError as error:
        print(f"S-26: error.json cannot be written: {error.strerror}", file=sys.stderr)


def _place(error: Exception) -> str:
    """Class and place of an unexpected error; its own text could hold data."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if Path(one.filename).parent == Path(__file__).parent]
    frame = (own or frames)[-1]
    return (
        f"S-26: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno} in "
        f"{frame.name}; this is a fault of the stack, run with ORACLE_DEBUG=1 to see more"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
