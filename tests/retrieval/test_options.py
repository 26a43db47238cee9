"""The options of a search are the same in Python, on the command line and over HTTP."""

import dataclasses
import inspect

import typer

import sightline
from sightline.cli.app import app
from sightline.collection import Collection
from sightline.retrieval.options import SearchOptions
from sightline.server.requests import ImageSearch, Search

OPTIONS = {field.name for field in dataclasses.fields(SearchOptions)}
PLACES = {"self", "at", "model"}
"""What says where to search, and with which copy of the model."""
OUTPUT = {"as_json", "paths", "null", "thumbnails", "literal", "help"}
"""What the command shows, and whether it looks for dates in a query, as `Collection.understand` and HTTP do."""


def test_collections_and_the_function_take_every_option() -> None:
    for function in (Collection.search, sightline.search):
        assert set(inspect.signature(function).parameters) - PLACES == OPTIONS


def test_the_command_takes_every_option() -> None:
    command = typer.main.get_command(app).commands["search"]  # type: ignore[attr-defined]
    renamed = {"words": "text", "without": "not_"}
    given = {renamed.get(parameter.name, parameter.name) for parameter in command.params}
    assert given - PLACES - OUTPUT == OPTIONS


def test_a_request_takes_every_option() -> None:
    renamed = {"q": "text"}
    image = {"image"}  # comes as a file of the form
    assert {renamed.get(name, name) for name in ImageSearch.model_fields} | image == OPTIONS
    assert {renamed.get(name, name) for name in Search.model_fields} | image | {"image_weight"} == OPTIONS


def test_the_defaults_are_the_same_everywhere() -> None:
    wanted = {field.name: field.default for field in dataclasses.fields(SearchOptions)}
    for function in (Collection.search, sightline.search):
        parameters = inspect.signature(function).parameters
        assert {name: parameters[name].default for name in OPTIONS} == wanted
    assert SearchOptions("a dog") == Search(q="a dog").options()
