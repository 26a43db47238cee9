"""The `sightline` command: each of its commands reads arguments, calls one verb and shows what came of it."""

from sightline.cli.app import app, main

__all__ = ["app", "main"]
