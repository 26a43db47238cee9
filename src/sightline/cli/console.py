"""Terminal output: results on stdout, messages on stderr."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from click import Option, get_current_context

from sightline.errors import OptionError, QueryError, SightlineError

if TYPE_CHECKING:
    from rich.table import Table

    from sightline.datasets import Problem

_STDERR = 2


def tell(message: str) -> None:
    """Print a message to stderr immediately."""
    print(message, file=sys.stderr, flush=True)


def tell_at_once(message: str) -> None:
    """Print a message from a signal handler, bypassing Python's buffers."""
    show_cursor = "\x1b[?25h" if os.isatty(_STDERR) else ""  # the progress bar hid it, and can no longer restore it
    with suppress(OSError):  # stderr is closed
        os.write(_STDERR, f"{show_cursor}\nsightline: {message}\n".encode())


def tell_skipped(problem: "Problem") -> None:
    """Report a skipped record and the reason."""
    print(f"skipped {problem.place}: {problem.reason}", file=sys.stderr)


def tell_unreadable(title: str, problems: Sequence["Problem"]) -> None:
    """Report unreadable images and the reasons: the first few, and the number of others."""
    from sightline.cli.formatting import problem_lines

    for line in problem_lines(title, [(one.place, one.reason) for one in problems]):
        tell(line)


@contextmanager
def results() -> Iterator[None]:
    """Flush everything printed in the block when it ends.

    If the reader closes the pipe, as `head` does, the rest is dropped without an error.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise SightlineError(
                f"the results cannot be written: {error.strerror or error}", "Free up space, or write them elsewhere."
            ) from error


def print_lines(*lines: str) -> None:
    """Write results as lines."""
    with results():
        print(*lines, sep="\n")


def print_json(value: object) -> None:
    """Write a result as JSON, in ASCII."""
    with results():
        print(json.dumps(value, indent=2))


def print_table(table: "Table") -> None:
    """Write a result as a table, as wide as the terminal."""
    from rich.console import Console

    console = Console()
    with console.capture() as drawn:  # otherwise rich exits when the reader closes the pipe
        console.print(table)
    with results():
        print(drawn.get(), end="")


@contextmanager
def named_options() -> Iterator[None]:
    """Convert option names in errors, at the start and between backticks, to those of the running command."""
    try:
        yield
    except OptionError as error:
        context = get_current_context(silent=True)
        options = [one for one in context.command.params if isinstance(one, Option)] if context else []
        names = {one.name: max(one.opts, key=len) for one in options}
        problem, way_out = (
            re.sub(r"`(\w+)`", lambda found: names.get(found[1], found[0]), text)
            for text in (error.problem, error.way_out)
        )
        dashes = "-" if len(error.option) == 1 else "--"
        name = names.get(error.option, dashes + error.option.rstrip("_").replace("_", "-"))
        raise QueryError(f"{name} {problem}", way_out) from error
