"""The collections of a server, searched as one. Each has its own range of ids, so that no two items share an id."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sightline.collection import Collection
from sightline.collection.catalog.where import shift_ids
from sightline.server.current_collection import CurrentCollection
from sightline.server.problems import not_found, unavailable

_BITS = 40  # bits for an item's id in its collection; JavaScript represents integers of up to 53 bits exactly
MOST = 1000
"""The maximum number of collections that one server can serve."""


@dataclass(frozen=True, slots=True)
class Member:
    """An open collection of a server and its number; `is_alone` if it is the only one."""

    collection: Collection
    number: int = 0
    is_alone: bool = True

    def outer(self, id: int) -> int:
        """Return the id that clients use for an item; for an item of the first collection, its own id."""
        return (self.number << _BITS) + id

    def own_filter(self, where: str | None) -> str | None:
        """Return a client's filter with the collection's own ids."""
        return where if where is None or not self.number else shift_ids(where, -self.outer(0))


class Library:
    """One or several collections, each of which is reopened when it has changed."""

    def __init__(self, parts: Sequence[CurrentCollection]) -> None:
        self.parts = tuple(parts)

    @property
    def is_available(self) -> bool:
        """Whether any of the collections can be searched; if none can, `use` raises an error."""
        return any(part.is_available for part in self.parts)

    @contextmanager
    def use(self) -> Iterator[tuple[Member, ...]]:
        """All collections, which stay open until the block ends, without those whose folders were deleted."""
        with ExitStack() as opened:
            members = tuple(
                Member(opened.enter_context(part.use()), number, len(self.parts) == 1)
                for number, part in enumerate(self.parts)
                if part.is_available
            )
            if not members:
                raise unavailable()
            yield members

    @contextmanager
    def holding(self, id: int) -> Iterator[tuple[Member, int]]:
        """The collection that contains an item, and the item's id in that collection."""
        number, own = divmod(id, 1 << _BITS)
        if number >= len(self.parts):
            raise not_found(id)
        if not self.parts[number].is_available:
            raise unavailable()
        with self.parts[number].use() as collection:
            yield Member(collection, number, len(self.parts) == 1), own


def split_ids(members: Sequence[Member], ids: Sequence[int]) -> list[tuple[Member, list[int]]]:
    """Group the ids that clients use by collection, as ids in that collection; unknown collections are left out."""
    found: dict[int, list[int]] = {}
    for id in ids:
        number, own = divmod(id, 1 << _BITS)
        found.setdefault(number, []).append(own)
    return [(member, found[member.number]) for member in members if member.number in found]
