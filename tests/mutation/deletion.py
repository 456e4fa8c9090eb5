"""A statement taken out: the one kind of change that cosmic-ray does not have, and what a protection mostly is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cosmic_ray.ast import get_ast
from cosmic_ray.operators.operator import Example, Operator

NAME = "tests/StatementDeletion"
GONE = "pass"
Position = tuple[tuple[int, int], tuple[int, int]]


class StatementDeletion(Operator):  # type: ignore[misc]
    """Takes out a call for its effect, a raise, an augmented assignment, and an ``if`` without ``else`` as a whole."""

    def mutation_positions(self, node: Any, *_more: Any) -> Iterator[Position]:
        if node.type == "if_stmt" and "else" not in node.children and "elif" not in node.children:
            yield node.start_pos, node.get_last_leaf().get_previous_leaf().end_pos
        elif node.type == "simple_stmt" and _has_effect(node.children[0]):
            yield node.start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        assert index == 0
        gone = get_ast(f"{GONE}\n").children[0]
        gone.get_first_leaf().prefix = node.get_first_leaf().prefix
        return gone

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example("sync(f)\n", "pass\n"),
            Example("raise\n", "pass\n"),
            Example("seen += 1\n", "pass\n"),
            Example("if wrong:\n    raise Wrong\n", "pass\n"),
        )


def _has_effect(statement: Any) -> bool:
    match statement.type:
        case "atom_expr":
            return bool(statement.children[-1].type == "trailer" and statement.children[-1].children[0] == "(")
        case "expr_stmt":
            return bool(statement.children[1].type == "operator" and statement.children[1].value.endswith("=")
                        and statement.children[1].value != "=")  # fmt: skip
        case "keyword":
            return bool(statement.value == "raise")
    return bool(statement.type == "raise_stmt")
