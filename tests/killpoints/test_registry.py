"""A name is declared once, as a literal, with its meaning; a wrong one is refused with the nearest known names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from killpoints import Point, PointError, catalogue, declare
from killpoints.registry import require_constant, require_declared


def computed(text: str) -> str:
    """The same text as another object, as a program would compute it."""
    return "".join([text[:3], text[3:]])


def test_a_point_is_its_name_and_says_what_it_means() -> None:
    saved = declare("shop.cart.saved", "the cart is durable", "cart.md 3", steps=("tmp-written", "renamed"))
    assert saved == "shop.cart.saved" and isinstance(saved, str)
    assert (saved.says, saved.spec) == ("the cart is durable", "cart.md 3")
    assert saved.steps == ("shop.cart.saved/tmp-written", "shop.cart.saved/renamed")
    assert saved.at("renamed").says == "the cart is durable: renamed" and saved.at("renamed").spec == "cart.md 3"
    assert catalogue()[-3:] == (saved, *saved.steps)
    assert all(isinstance(point, Point) for point in catalogue())


def test_a_point_that_is_declared_twice() -> None:
    declare("shop.saved", "the cart is durable")
    with pytest.raises(PointError, match=r"'shop.saved' is declared twice; it already says: 'the cart is durable'"):
        declare("shop.saved", "something else")


def test_a_step_that_is_a_point_already() -> None:
    with pytest.raises(PointError, match="declared twice"):
        declare("shop.saved", "the cart is durable", steps=("renamed", "renamed"))


@pytest.mark.parametrize("step", ["", "Renamed", "re named", "-x", "a/b", "a.b", "1st"])
def test_a_step_that_is_malformed(step: str) -> None:
    with pytest.raises(PointError, match="is malformed; write lower-case words"):
        declare("shop.saved", "the cart is durable", steps=(step,))
    assert "shop.saved" not in catalogue()


MALFORMED: tuple[Callable[[], Point], ...] = (  # each name is a literal, as declare() demands
    lambda: declare("", "says"),
    lambda: declare("Shop.saved", "says"),
    lambda: declare("shop..saved", "says"),
    lambda: declare("shop.saved.", "says"),
    lambda: declare("shop saved", "says"),
    lambda: declare("shop.sav,ed", "says"),
    lambda: declare("shop.saved#1", "says"),
    lambda: declare("shop.saved=kill", "says"),
    lambda: declare("shop.saved/renamed", "says"),
    lambda: declare("1shop.saved", "says"),
)


@pytest.mark.parametrize("declare_it", MALFORMED)
def test_a_name_that_is_malformed(declare_it: Callable[[], Point]) -> None:
    with pytest.raises(PointError, match=r"is malformed; write PRODUCT\.AREA\.NAME"):
        declare_it()


@pytest.mark.parametrize("says", ["", "  ", "two\nlines"])
def test_a_meaning_is_one_line(says: str) -> None:
    with pytest.raises(PointError, match="needs one line of meaning"):
        declare("shop.saved", says)


def test_a_name_that_is_computed() -> None:
    """A reader must find every name by searching for it."""
    declare("shop.saved", "the cart is durable")
    area, before = "shop", len(catalogue())
    with pytest.raises(PointError, match=rf"'shop.paid' is computed; write it as a literal in {__file__}.*shop.saved"):
        declare(f"{area}.paid", "the money is taken")
    with pytest.raises(PointError, match="is computed"):
        declare(".".join([area, "sold"]), "sold")
    assert len(catalogue()) == before


def test_a_step_that_the_point_does_not_have() -> None:
    saved = declare("shop.saved", "the cart is durable", steps=("renamed",))
    with pytest.raises(
        PointError, match="unknown kill point 'shop.saved/renamd'; the nearest known: shop.saved/renamed"
    ):
        saved.at("renamd")


def test_a_name_that_nobody_declared() -> None:
    declare("shop.saved", "the cart is durable")
    declare("shop.paid", "the money is taken")
    with pytest.raises(PointError, match="unknown kill point 'shop.savd'; the nearest known: shop.saved"):
        require_declared("shop.savd")
    with pytest.raises(PointError, match="no point is declared that looks like it"):
        require_declared("zzz")
    require_declared("shop.paid")


def test_no_more_than_three_names_are_told() -> None:
    declare("shop.save1", "one")
    declare("shop.save2", "two")
    declare("shop.save3", "three")
    declare("shop.save4", "four")
    with pytest.raises(PointError) as caught:
        require_declared("shop.save")
    assert str(caught.value).count("shop.save") == 1 + 3


def test_only_the_object_that_was_declared_is_the_point() -> None:
    saved = declare("shop.saved", "the cart is durable")
    require_constant(saved)
    same = computed("shop.saved")
    assert same == saved
    with pytest.raises(PointError, match="'shop.saved' was computed; pass the constant"):
        require_constant(same)
    with pytest.raises(PointError, match="unknown kill point 'shop.savd'; the nearest known: shop.saved"):
        require_constant("shop.savd")
