"""Show the help of a command's arguments, which is missing if typer 0.20 is used with click 8.5."""

import inspect
from typing import Any, get_type_hints

from typer.core import TyperArgument, TyperCommand
from typer.models import ArgumentInfo


class HelpfulCommand(TyperCommand):
    """A command that shows the help of its arguments."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.callback is None:
            return
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.name in hints:
                given = getattr(hints[parameter.name], "__metadata__", ())
                parameter.help = next((one.help for one in given if isinstance(one, ArgumentInfo)), parameter.help)
