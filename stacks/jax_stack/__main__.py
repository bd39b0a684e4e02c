"""The command line of a leg: `train`, `render`, `vectors` (S-26).

Modules that import jax are imported after the threads are limited, and not at all by `render`.
"""

import argparse
import os
import sys
import traceback
from pathlib import Path

from .config import load_config
from .errors import BadInput, StackError
from .runtime import StopSignal, limit_threads, start_jax


def main(arguments: list[str]) -> int:
    """Runs one verb and returns the exit code."""
    os.umask(0o077)  # every file of a leg is private (S-24)
    options = _parse(arguments)
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
    return _guard(lambda: _run_leg(options, stop), out, options.nonce)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="stacks.jax_stack", description=__doc__, allow_abbrev=False
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("train", "render"):
        command = verbs.add_parser(verb, allow_abbrev=False)
        for name, kind in (("--config", Path), ("--root", Path), ("--out", Path), ("--nonce", str)):
            command.add_argument(name, type=kind, required=True)
        if verb == "train":
            command.add_argument("--resume", action="store_true")
            command.add_argument("--no-trace", action="store_true")
    command = verbs.add_parser("vectors", allow_abbrev=False)
    command.add_argument("--in", dest="input", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


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
    device = start_jax(config.run.runtime.device)
    from .train import train

    train(
        config,
        options.out,
        options.nonce,
        resume=options.resume,
        trace=not options.no_trace,
        device=device,
        stop=stop,
    )


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
