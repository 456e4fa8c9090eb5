"""Named kill points: places where a test can end, fail or hold a program, and that cost nothing until armed.

    from killpoints import attempt, declare, reach

    SAVED = declare("shop.cart.saved", "the cart is durable, the receipt is not written yet", "docs/cart.md 3")

    save(cart)
    reach(SAVED)                                  # after the effect
    attempt(SAVED_INDEX, os.replace, tmp, final)  # an armed error replaces the call, a kill comes after it

Standard library only. Arm from code with :func:`arm`, or from outside with the environment variable ``KILLPOINTS``.
Not part of the package's promise: threads of one process share one count of hits.
"""

from killpoints.actions import Armed
from killpoints.hook import arm, attempt, disarm, reach
from killpoints.plan import Action, Arming, Plan, PlanError
from killpoints.registry import Point, PointError, catalogue, declare

__all__ = [
    "Action",
    "Armed",
    "Arming",
    "Plan",
    "PlanError",
    "Point",
    "PointError",
    "arm",
    "attempt",
    "catalogue",
    "declare",
    "disarm",
    "reach",
]
