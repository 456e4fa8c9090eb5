"""Which cards are one post, and which posts the archive already has (V003 1.1, collector.md section 5). Pure.

Everything here is a union over shared stable keys: within an observation, across observations, and through what the
archive knows. Two different values of one identifier kind inside one union are a contradiction, never a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from product.collector.evidence import Card, EvidenceRejected, require_one_post
from product.collector.keys import Identifiers, group_by_keys, identifiers_of


@dataclass(frozen=True, slots=True)
class Component:
    """One post: all its keys and identifiers; the rest, and ``pointer``, from the card of it that was seen first."""

    keys: tuple[str, ...]
    identifiers: Identifiers
    published_at: str
    content_type: str
    source_url: str
    pointer: str = field(default="", compare=False)

    def as_json(self) -> dict[str, object]:
        return {
            "keys": list(self.keys),
            "identifiers": self.identifiers.as_json(),
            "published_at": self.published_at,
            "content_type": self.content_type,
            "source_url": self.source_url,
        }


@dataclass(frozen=True, slots=True)
class KnownPost:
    """A post that the archive has, and the components of this run that are it. ``new_keys``: names it did not have."""

    post_id: str
    components: tuple[Component, ...]
    new_keys: tuple[str, ...]


class Joined(NamedTuple):
    new: tuple[Component, ...]
    known: tuple[KnownPost, ...]


def join_cards(cards: Iterable[Card]) -> tuple[Component, ...]:
    """Components in the order first seen. Which cards are one post does not depend on the order of the cards.

    Raises EvidenceRejected E_IDENTITY_CONFLICT.
    """
    return tuple(_component(group) for group in group_by_keys(cards, lambda card: card.stable_keys))


def _component(cards: Sequence[Card]) -> Component:
    require_one_post((key, card.pointer) for card in cards for key in card.stable_keys)
    keys = tuple(sorted({key for card in cards for key in card.stable_keys}))
    first = cards[0]
    return Component(
        keys, identifiers_of(keys), first.published_at, first.content_type, first.source_url, first.pointer
    )


def join_with_archive(
    components: Iterable[Component],
    post_of: Callable[[str], str | None],
    archived: Callable[[str], Identifiers],
) -> Joined:
    """Split into posts to append and posts that are there; both in the order first seen.

    ``post_of`` maps a stable key to the id of the archived post that has it; ``archived`` gives that post's
    identifiers. Raises EvidenceRejected E_IDENTITY_CONFLICT for a component that touches two archived posts, and for
    one whose identifiers contradict those of the post it joins, alone or together with the run's other components.
    """
    new: list[Component] = []
    found: dict[str, list[Component]] = {}
    for component in components:
        post_id = _archived_post(component, post_of)
        if post_id is None:
            new.append(component)
        else:
            found.setdefault(post_id, []).append(component)
    return Joined(tuple(new), tuple(_known(post_id, group, archived(post_id)) for post_id, group in found.items()))


def _archived_post(component: Component, post_of: Callable[[str], str | None]) -> str | None:
    found = {post_id: key for key in component.keys if (post_id := post_of(key)) is not None}
    if len(found) > 1:
        raise EvidenceRejected(
            "E_IDENTITY_CONFLICT",
            f"one post is two in the archive: {', '.join(found)}",
            component.pointer,
            posts=list(found),
            keys=list(found.values()),
        )
    return next(iter(found), None)


def _known(post_id: str, group: Sequence[Component], identifiers: Identifiers) -> KnownPost:
    seen = [(key, component.pointer) for component in group for key in component.keys]
    require_one_post([*((key, f"archive:{post_id}") for key in identifiers.keys), *seen])
    return KnownPost(post_id, tuple(group), tuple(sorted({key for key, _ in seen} - set(identifiers.keys))))
