"""The command-line application: its commands, in the order of the help, and its error handling."""

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from sightline import __version__
from sightline.cli import (
    collection_commands,
    comparison_commands,
    evaluation_commands,
    installation_commands,
    search_commands,
    training_commands,
)
from sightline.cli.console import results
from sightline.cli.help import HelpfulCommand
from sightline.errors import SightlineError

_SHORT_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Find images by words and words by images.",
    context_settings=_SHORT_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click already makes suggestions
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "index": search_commands.index,
    "search": search_commands.search,
    "explain": evaluation_commands.explain,
    "serve": search_commands.serve,
    "status": collection_commands.status,
    "remove": collection_commands.remove,
    "eval": evaluation_commands.evaluate,
    "compare": comparison_commands.compare,
    "regions": training_commands.regions,
    "train": training_commands.train,
    "export": training_commands.export,
    "demo": installation_commands.demo,
    "doctor": installation_commands.doctor,
    "models": installation_commands.models,
}

_INTERRUPTED = "sightline: interrupted"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def _saying_when_interrupted(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command to report an interrupt, unless it does so itself, because typer would print nothing."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            print(_INTERRUPTED, file=sys.stderr)
            raise typer.Exit(130) from None

    return run


for _name, _command in _COMMANDS.items():
    app.command(_name, cls=HelpfulCommand, context_settings=_SHORT_HELP)(_saying_when_interrupted(_command))


def main() -> None:
    """Run the command; expected errors are printed as a message, not a traceback."""
    warnings.filterwarnings("ignore", module="PIL")  # about odd metadata in valid images
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()  # None if the shell closed them
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # replace characters that the terminal cannot print
    try:
        with _flushed():
            app()
    except SightlineError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is None and error.errno not in _DISK_FULL:
            raise
        _fail(f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else f"{error.strerror}")
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)
        sys.exit(130)


def _fail(message: str) -> NoReturn:
    print(f"sightline: {message}", file=sys.stderr)
    sys.exit(1)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


@contextmanager
def _flushed() -> Iterator[None]:
    """Flush stdout at the end of the block, including the help text."""
    try:
        yield
    finally:
        with results():
            pass


def _version(asked: bool) -> None:
    if asked:
        print(f"sightline {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find images by words and words by images."""
