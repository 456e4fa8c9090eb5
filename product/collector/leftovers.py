"""leftovers.json: quarantined locks whose deletion failed, kept until a later run can delete them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from product.collector import shape
from product.collector.claims import Item, parse_item
from product.durable import canonical

Leftover = Item


@dataclass(frozen=True, slots=True)
class LeftoverList:
    """The document: schema 1, items sorted by path."""

    items: tuple[Leftover, ...]

    @property
    def data(self) -> bytes:
        items = [item.as_json() for item in sorted(self.items, key=lambda item: item.path)]
        return canonical.encode({"schema_version": 1, "items": items})


def parse_leftovers(data: bytes) -> tuple[Leftover, ...]:
    """Raises ShapeError or JsonRejected."""
    fields = shape.require_object(canonical.decode_canonical(data), ("schema_version", "items"), "")
    shape.require_equal(fields["schema_version"], 1, "/schema_version")
    items = shape.require_list(fields["items"], "/items")
    return tuple(parse_item(item, f"/items/{number}") for number, item in enumerate(items))
