"""The command line of a leg: `train`, `render`, `replay`, `vectors` (S-26, S-29).

Modules that import jax are imported after the threads are limited, and not at all by `render`.
"""

import argparse
import math
import os
import sys
import traceback
from pathlib import Path

from .config import LoadedConfig, load_config
from .errors import BadInput, StackError
from .host import CHILD, CONDITIONS, Host, let_signals_in, run_in_child
from .runtime import StopSignal, limit_threads, start_jax


def main(arguments: list[str], *, is_child: bool = False) -> int:
    """Runs one verb and returns the exit code; `is_child`: in the process that does the work."""
    os.umask(0o077)  # every file of a leg is private (S-24)
    options = _parse(arguments)
    condition = getattr(options, "host", None)
    if condition in CHILD and not is_child:
        return run_in_child(condition, arguments)
    if options.verb == "vectors":
        return _guard(lambda: _vectors(options), None, "vectors")
    out: Path = options.out
    try:
        _open_directory(out, getattr(options, "resume", False))
    except BadInput as error:
        print(
            error, file=sys.stderr
        )  # nothing is written into a directory that may be another leg's
        return error.exit_code
    stop = StopSignal()
    stop.listen()
    if is_child:
        let_signals_in()
    return _guard(lambda: _run_leg(options, stop), out, options.nonce)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="stacks.jax_stack", description=__doc__, allow_abbrev=False
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("train", "render", "replay"):
        command = verbs.add_parser(verb, allow_abbrev=False)
        for name, kind in (("--config", Path), ("--root", Path), ("--out", Path), ("--nonce", str)):
            command.add_argument(name, type=kind, required=True)
        if verb == "train":
            command.add_argument("--resume", action="store_true")
            command.add_argument("--no-trace", action="store_true")
            command.add_argument("--anchors", type=Path)
            command.add_argument("--anchor-seconds", type=_seconds, default=600.0)
            command.add_argument("--host", choices=CONDITIONS)
        if verb == "replay":
            command.add_argument("--step", type=int, required=True)
            command.add_argument("--from", dest="sources", action="append", required=True)
            for name in ("--batches", "--rates", "--gradients"):
                command.add_argument(name, type=Path)
            command.add_argument("--export", action="store_true")
    command = verbs.add_parser("vectors", allow_abbrev=False)
    command.add_argument("--in", dest="input", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(text)
    return value


def _open_directory(out: Path, resume: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not resume:
            raise BadInput(
                f"{out}: --out must be empty (S-26); name another directory, or resume the leg "
                "with --resume"
            )
        out.chmod(0o700)
    except OSError as error:
        raise BadInput(
            f"{out}: --out cannot be used ({error.strerror}); name another directory"
        ) from error


def _run_leg(options: argparse.Namespace, stop: StopSignal) -> None:
    if not options.nonce:
        raise BadInput("--nonce must not be empty (S-26); the launcher names one")
    config = load_config(options.config, options.root)
    limit_threads(config.run.runtime.threads)
    if options.verb == "render":
        from .render_leg import render

        render(config, options.out, options.nonce, stop)
        return
    host = Host(condition=getattr(options, "host", None))
    host.begin()
    device = start_jax(config.run.runtime.device)
    if options.verb == "replay":
        _replay(config, options, device, stop)
    else:
        _train(config, options, device, host, stop)


def _train(
    config: LoadedConfig, options: argparse.Namespace, device: str, host: Host, stop: StopSignal
) -> None:
    from .train import TrainOptions, train

    chosen = TrainOptions(
        resume=options.resume,
        trace=not options.no_trace,
        device=device,
        host=host,
        anchors=options.anchors,
        anchor_seconds=options.anchor_seconds,
    )
    train(config, options.out, options.nonce, chosen, stop)


def _replay(
    config: LoadedConfig, options: argparse.Namespace, device: str, stop: StopSignal
) -> None:
    from .replay import ReplayOptions, replay

    chosen = ReplayOptions(
        step=options.step,
        sources=options.sources,
        batches=options.batches,
        rates=options.rates,
        gradients=options.gradients,
        export=options.export,
        device=device,
    )
    replay(config, options.out, options.nonce, chosen, stop)


def _vectors(options: argparse.Namespace) -> None:
    limit_threads(1)
    start_jax("cpu")
    from .vectors import answer_file

    answer_file(options.input, options.out)


def _guard(run: object, out: Path | None, nonce: str) -> int:
    """Runs, and turns what is raised into an exit code, a sentence and `error.json`."""
    assert callable(run)
    try:
        run()
        return 0
    except StackError as error:
        kind, code, sentence = error.kind, error.exit_code, " ".join(str(error).split())
    except Exception as error:  # noqa: BLE001 - the text of a foreign exception may quote data: it is not shown
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        kind, code = "failed", 1
        sentence = (
            f"{type(error).__name__} was raised at {place}; set ORACLE_DEBUG=1 to see the traceback"
        )
    if os.environ.get("ORACLE_DEBUG") == "1":
        traceback.print_exc()
    if out is not None:
        from .trace import write_error

        write_error(out, nonce or "none", kind, sentence)
    print(sentence, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
