"""The `sightline` command: each subcommand parses arguments, calls one function and prints the result."""

from sightline.cli.app import app, main

__all__ = ["app", "main"]
