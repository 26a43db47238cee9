"""Where a store under test lives. A store of another engine joins the suite by a class like these."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sightline.stores.base import Shape, Store
from sightline.stores.local import LocalStore
from sightline.stores.local_search import Effort
from sightline.stores.milvus import MilvusStore
from sightline.stores.milvus_address import parse_address
from sightline.stores.postgres import PostgresStore
from sightline.stores.postgres_address import parse_postgres_address

EXACT = Effort()
# Signs choose the candidates of every search, but so many that none of the few items of a test is missed.
BY_SIGNS = Effort(exact_up_to=0, candidates=10**6)


class Place(Protocol):
    """Somewhere for one store."""

    tolerance: float  # how far scores may lie from those of vectors rounded to float16
    lives: int  # how many a store goes through, in which anything may happen to it

    def open(self, shape: Shape) -> Store:
        """Open the store for reading and writing; the same place holds the same store."""
        ...

    def after_crash(self, shape: Shape) -> Store | None:
        """The store as it would be had its process been killed just now; None where that cannot be tried."""
        ...


@dataclass
class LocalPlace:
    folder: Path
    effort: Effort
    tolerance: float = 2e-6
    lives: int = 150
    crashes: int = 0

    def open(self, shape: Shape) -> LocalStore:
        return LocalStore.open(self.folder, shape, write=True, effort=self.effort)

    def after_crash(self, shape: Shape) -> LocalStore:
        self.crashes += 1
        copy = self.folder.with_name(f"{self.folder.name}-crash-{self.crashes}")
        shutil.copytree(self.folder, copy)
        return LocalStore.open(copy, shape, write=True, effort=self.effort)


@dataclass
class MilvusPlace:
    url: str
    tolerance: float = 2e-6
    lives: int = 3

    def open(self, shape: Shape) -> MilvusStore:
        return MilvusStore.open(parse_address(self.url), shape, write=True)

    def after_crash(self, shape: Shape) -> None:
        """The server goes on when its client dies; what happens when it dies itself is tried in tests/scale."""


@dataclass
class PostgresPlace:
    url: str
    tolerance: float = 2e-6
    lives: int = 6

    def open(self, shape: Shape) -> PostgresStore:
        return PostgresStore.open(parse_postgres_address(self.url), shape, write=True)

    def after_crash(self, shape: Shape) -> None:
        """The server goes on when its client dies; what happens when it dies itself is tried in tests/scale."""
