"""Help of commands: of their arguments, which is missing if typer 0.20 is used with click 8.5, and about --at."""

import inspect
from typing import Any, get_type_hints

from click import Context, UsageError
from typer.core import TyperArgument, TyperCommand
from typer.models import ArgumentInfo


class HelpfulCommand(TyperCommand):
    """A command that shows the help of its arguments, and what to type for a folder in the wrong place."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.callback is None:
            return
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.name in hints:
                given = getattr(hints[parameter.name], "__metadata__", ())
                parameter.help = next((one.help for one in given if isinstance(one, ArgumentInfo)), parameter.help)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the arguments; if there are too many, tell how to name a collection."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            if "unexpected extra argument" not in error.message or not any("--at" in one.opts for one in self.params):
                raise
            raise UsageError(f"{error.message}. Specify the folder of a collection with --at.", ctx) from None
