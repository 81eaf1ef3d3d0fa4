"""Renewal of clients in the child of a fork.

Gunicorn with ``--preload`` and multiprocessing fork processes that have clients already.

A child inherits the sockets, locks and records of its parent, but none of its threads.
Two processes that use one socket receive each other's responses, a lock that a thread
of the parent held is never released in the child, and records that wait in a producer
would be stored by both. So every object with such state registers a method that
replaces it in the child. A request costs nothing for this.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import MethodType
from typing import Any

# By the ids of the references: the object, and the function to call with it. A ``WeakMethod`` that is forgotten in its
# callback writes an AttributeError to stderr when a program ends, because its class is collected in the same pass.
_renewals: dict[int, tuple[weakref.ref[Any], Callable[[Any], object]]] = {}


def in_child(renew: MethodType) -> None:
    """Call ``renew``, a method, in each child of this process while its object lives.

    It runs before the fork returns in the child. It must take no lock, wait for nothing,
    and leave what the parent still uses: connections are passed to ``leave``.
    """
    reference = weakref.ref(renew.__self__, _forget)
    _renewals[id(reference)] = reference, renew.__func__


def _forget(reference: weakref.ref[Any]) -> None:
    _renewals.pop(id(reference), None)


def leave(descriptors: Iterable[int]) -> None:
    """Give up sockets that the parent uses, in the child.

    A shutdown, or removing a socket from an inherited epoll instance, would change the
    parent's connection. Instead the descriptors refer to the null device from now on, and
    their owner may close them.
    """
    opened = [descriptor for descriptor in descriptors if descriptor >= 0]
    if not opened:
        return
    # Without a descriptor to spare, the sockets stay open in the child, which does not use them.
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in opened:
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)


def _renew_all() -> None:
    for reference, renew in _renewals.copy().values():
        instance = reference()
        if instance is not None:
            renew(instance)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
