"""Every error class has a problem kind that a program can act on."""

from __future__ import annotations

from app import errors
from app.api.errors import PROBLEM_KINDS
from app.tcp.errors import ERROR_CODES


def leaves(base: type[errors.SteleError]) -> set[type[errors.SteleError]]:
    below = base.__subclasses__()
    return {leaf for child in below for leaf in leaves(child)} if below else {base}


def test_every_leaf_of_the_error_tree_is_in_the_table_of_the_http_listener() -> None:
    assert set(PROBLEM_KINDS) == leaves(errors.SteleError)


def test_both_listeners_answer_an_error_with_the_same_number_unless_bytes_and_json_differ() -> None:
    assert {kind: problem.code for kind, problem in PROBLEM_KINDS.items()} == ERROR_CODES


def test_no_two_errors_share_a_problem_type() -> None:
    slugs = [kind.slug for kind in PROBLEM_KINDS.values()]

    assert len(set(slugs)) == len(slugs)
