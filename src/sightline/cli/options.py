"""Parameters that several commands take, with the same meaning and the same help."""

from typing import Annotated, TypeAlias

import typer

MODELS = "default, fast, a bundle or checkpoint folder, or hf:NAME."

ModelName: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help=MODELS)]

CollectionModel: TypeAlias = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="The collection's model, if its folder was moved.")
]

At: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="DIR|URL", help="The collection: its folder or store. By default the nearest .sightline."
    ),
]

SeveralAt: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--at",
        metavar="DIR|URL",
        help="The collection: its folder or store. Repeat it for several. By default the nearest .sightline.",
    ),
]

Imports: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a module, or module:Encoder, first. May be repeated."),
]
