"""Translate-test (paper 4, section 4.4): captions in another language, put into the model's own before it reads them.

No translator comes with Sightline. Any will do, as a function or as a command.
"""

import shlex
import subprocess
from collections.abc import Callable, Sequence

from sightline.errors import EvaluationError

Translator = Callable[[Sequence[str], str], Sequence[str]]
"""Given texts and the language they are in, gives as many translations, in the same order."""


def command_translator(command: str) -> Translator:
    """Translate by a command that reads a text a line and writes its translation a line, in UTF-8.

    `{lang}` in the command stands for the language that is translated from. No shell is run.
    """
    parts = shlex.split(command)
    if not parts:
        raise EvaluationError("the translator's command is empty", 'For example --translate "my-translator {lang} en".')

    def translate(texts: Sequence[str], lang: str) -> list[str]:
        called = [part.replace("{lang}", lang) for part in parts]
        lines = "".join(" ".join(text.split()) + "\n" for text in texts)
        try:
            done = subprocess.run(called, input=lines.encode(), capture_output=True, check=True)
            return done.stdout.decode().removesuffix("\n").split("\n")
        except OSError as error:
            raise EvaluationError(f"the translator {shlex.join(called)} cannot be run: {error}") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines()
            raise EvaluationError(
                f"the translator {shlex.join(called)} ended with {error.returncode}: {said[-1] if said else 'no word'}"
            ) from error
        except UnicodeDecodeError as error:
            raise EvaluationError(f"the translator {shlex.join(called)} does not write UTF-8: {error}") from error

    translate.__name__ = command
    return translate


def translated(texts: Sequence[str], lang: str, translate: Translator) -> tuple[str, ...]:
    """Translate texts; too few, too many or empty translations are refused, for each must stand for its own text."""
    found = tuple(translate(texts, lang))
    if len(found) != len(texts):
        raise EvaluationError(
            f"the translator gave {len(found)} texts for {len(texts)}", "It must give a line for each line, in order."
        )
    for text, translation in zip(texts, found, strict=True):
        if not translation.strip():
            raise EvaluationError(f"the translator gave nothing for {text!r}")
    return found
