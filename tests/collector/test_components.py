"""Which cards are one post, here and in the archive (V003 1.1, collector.md section 5)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.collector.components import Component, Joined, join_cards, join_with_archive
from product.collector.evidence import Card, EvidenceRejected
from product.collector.keys import Identifiers, contradict

BVIDS = [f"BV1xx411c7m{letter}" for letter in "ABCDEFGH"]


def card(dynamic: int | None = None, opus: int | None = None, bvid: str | None = None, *, at: int = 0) -> Card:
    identifiers = Identifiers(str(dynamic) if dynamic else None, str(opus) if opus else None, bvid)
    published_at = f"2026-11-30T12:{at:02d}:00Z"
    url = f"https://space.bilibili.com/{at}"
    return Card(0, identifiers, identifiers.keys, published_at, "video", url, f"/observations/{at}/cards/0")


class Archive:
    """A few archived posts, looked up as the collector's index is."""

    def __init__(self, **posts: Identifiers) -> None:
        self.posts = posts

    def post_of(self, key: str) -> str | None:
        return next((name for name, identifiers in self.posts.items() if key in identifiers.keys), None)

    def join(self, *cards: Card) -> Joined:
        return join_with_archive(join_cards(cards), self.post_of, self.posts.__getitem__)


def conflict_of(*cards: Card, archive: Archive | None = None) -> EvidenceRejected:
    with pytest.raises(EvidenceRejected) as caught:
        (archive or Archive()).join(*cards)
    assert caught.value.code == "E_IDENTITY_CONFLICT"
    return caught.value


def test_cards_without_a_common_key_are_different_posts() -> None:
    assert [component.keys for component in join_cards([card(2), card(1), card(opus=1)])] == [
        ("dynamic:2",), ("dynamic:1",), ("opus:1",),
    ]  # fmt: skip


def test_a_chain_of_cards_is_one_post_with_all_its_names() -> None:
    [joined] = join_cards([card(dynamic=1, at=3), card(bvid=BVIDS[0]), card(opus=2, bvid=BVIDS[0]), card(1, 2)])
    assert joined.keys == ("dynamic:1", "opus:2", f"video:{BVIDS[0]}")
    assert joined.identifiers == Identifiers("1", "2", BVIDS[0])
    assert (joined.published_at, joined.source_url) == ("2026-11-30T12:03:00Z", "https://space.bilibili.com/3")
    assert joined.pointer == "/observations/3/cards/0"


def test_a_name_that_only_the_url_gives_is_an_identifier_of_the_post() -> None:
    by_url = Card(0, Identifiers(), ("opus:5",), "2026-11-30T12:00:00Z", "draw", "https://www.bilibili.com/opus/5")
    assert [component.identifiers for component in join_cards([by_url])] == [Identifiers(opus_id="5")]


def test_two_values_of_one_kind_in_one_post() -> None:
    refused = conflict_of(card(1, bvid=BVIDS[0], at=2), card(9), card(3, bvid=BVIDS[0], at=10))
    assert refused.pointer == "/observations/10/cards/0"
    assert refused.detail["values"] == ["1", "3"]
    assert refused.detail["where"] == ["/observations/2/cards/0", "/observations/10/cards/0"]


@pytest.mark.parametrize(
    ("keys", "found"),
    [((), False), (("dynamic:1",), False), (("dynamic:1", "opus:1"), False), (("dynamic:1", "dynamic:2"), True),
     (("dynamic:1", "opus:1", "video:BV1", "opus:2"), True)],
)  # fmt: skip
def test_two_keys_of_one_kind_contradict(keys: tuple[str, ...], found: bool) -> None:
    assert contradict(keys) is found


def test_two_values_that_only_a_third_card_brings_together() -> None:
    join_cards([card(1, opus=5), card(2, bvid=BVIDS[0])])
    assert conflict_of(card(1, opus=5), card(2, bvid=BVIDS[0]), card(opus=5, bvid=BVIDS[0])).detail["kind"] == "dynamic"


def posts_of(numbers: list[int]) -> list[Card]:
    """Cards of several posts: each number picks a post (n // 7) and which of its names a card shows (n % 7 + 1)."""
    cards = []
    for at, number in enumerate(numbers):
        post, shown = divmod(number, 7)
        mask = shown + 1
        cards.append(
            card(
                post + 1 if mask & 1 else None,
                post + 1 if mask & 2 else None,
                BVIDS[post] if mask & 4 else None,
                at=at,
            )
        )
    return cards


def partition(components: Iterable[Component]) -> set[tuple[tuple[str, ...], Identifiers]]:
    return {(component.keys, component.identifiers) for component in components}


def by_brute_force(cards: list[Card]) -> set[tuple[str, ...]]:
    """Merge sets of keys until nothing changes: slow and plain."""
    sets = [set(one.stable_keys) for one in cards]
    merged = True
    while merged:
        merged = False
        for left in sets:
            for right in sets:
                if left is not right and left & right:
                    left |= right
                    sets.remove(right)
                    merged = True
                    break
            if merged:
                break
    return {tuple(sorted(keys)) for keys in sets}


@settings(deadline=None)
@given(st.lists(st.integers(0, 7 * 8 - 1), max_size=16), st.randoms(use_true_random=False))
def test_the_union_does_not_depend_on_order(numbers: list[int], random: object) -> None:
    cards = posts_of(numbers)
    shuffled = list(cards)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert partition(join_cards(shuffled)) == partition(join_cards(cards))
    assert {component.keys for component in join_cards(cards)} == by_brute_force(cards)


@settings(deadline=None)
@given(st.lists(st.integers(0, 7 * 8 - 1), max_size=16))
def test_the_union_is_idempotent(numbers: list[int]) -> None:
    cards = posts_of(numbers)
    once = join_cards(cards)
    assert join_cards([*cards, *cards]) == once
    again = [
        Card(0, one.identifiers, one.keys, one.published_at, one.content_type, one.source_url) for one in once
    ]  # fmt: skip
    assert join_cards(again) == once
    keys = [key for component in once for key in component.keys]
    assert len(keys) == len(set(keys))


@settings(deadline=None)
@given(st.lists(st.integers(0, 7 * 8 - 1), min_size=1, max_size=16))
def test_first_seen_decides_order_and_content(numbers: list[int]) -> None:
    cards = posts_of(numbers)
    components = join_cards(cards)
    firsts = [
        min(at for at, one in enumerate(cards) if set(one.stable_keys) & set(component.keys))
        for component in components
    ]
    assert firsts == sorted(firsts)
    assert [component.published_at for component in components] == [cards[at].published_at for at in firsts]


def test_components_are_split_by_what_the_archive_has() -> None:
    archive = Archive(p1=Identifiers("1", None, BVIDS[0]), p2=Identifiers("2"))
    new, known = archive.join(card(9), card(1), card(2, opus=7), card(8))
    assert [component.keys for component in new] == [("dynamic:9",), ("dynamic:8",)]
    assert [(post.post_id, post.new_keys) for post in known] == [("p1", ()), ("p2", ("opus:7",))]


def test_an_empty_archive_knows_nothing() -> None:
    new, known = Archive().join(card(1), card(2))
    assert (len(new), known) == (2, ())


def test_values_are_frozen() -> None:
    joined = Archive(p1=Identifiers("1")).join(card(1), card(2))
    assert hash(joined) == hash(Archive(p1=Identifiers("1")).join(card(1), card(2)))


def test_two_components_may_be_one_archived_post() -> None:
    archive = Archive(p1=Identifiers("1", "2"))
    new, known = archive.join(card(1), card(opus=2, bvid=BVIDS[0]))
    assert new == ()
    assert [(post.post_id, len(post.components), post.new_keys) for post in known] == [
        ("p1", 2, (f"video:{BVIDS[0]}",))
    ]


def test_a_component_that_is_two_archived_posts() -> None:
    refused = conflict_of(
        card(9), card(1, opus=2, at=4), archive=Archive(p1=Identifiers("1"), p2=Identifiers(None, "2"))
    )
    assert refused.detail["posts"] == ["p1", "p2"]
    assert refused.detail["keys"] == ["dynamic:1", "opus:2"]
    assert refused.pointer == "/observations/4/cards/0"


def test_a_component_that_contradicts_the_archived_post() -> None:
    refused = conflict_of(card(3, bvid=BVIDS[0], at=4), archive=Archive(p1=Identifiers("1", None, BVIDS[0])))
    assert refused.detail["values"] == ["1", "3"]
    assert refused.detail["where"] == ["archive:p1", "/observations/4/cards/0"]
    assert refused.pointer == "/observations/4/cards/0"


def test_two_components_that_contradict_each_other_through_the_archive() -> None:
    archive = Archive(p1=Identifiers("1", "2"))
    archive.join(card(1, bvid=BVIDS[0]), card(opus=2))
    refused = conflict_of(card(1, bvid=BVIDS[0]), card(opus=2, bvid=BVIDS[1], at=4), archive=archive)
    assert (refused.detail["kind"], refused.pointer) == ("video", "/observations/4/cards/0")
