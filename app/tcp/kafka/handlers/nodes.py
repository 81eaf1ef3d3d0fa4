"""The brokers that Kafka clients are shown, and their broker per partition.

A broker on its own is shown with the address of the listener that was asked. Every broker of a cluster serves
every partition; clients of one partition are sent to one of them (``app.cluster.leaders``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....broker.topics import Topic
from ..context import Context


class Node(NamedTuple):
    """A broker as clients see it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


def nodes(context: Context) -> list[Node]:
    """Return the live brokers by ascending id."""
    listed: list[Node] = []
    for member in context.broker.cluster.members:
        endpoint = member.endpoints.get("kafka")
        if endpoint is not None:
            listed.append(Node(member.broker_id, endpoint.host, endpoint.port, member.rack))
    return listed or [own_node(context)]


def own_node(context: Context) -> Node:
    """Return this broker, with the address of its listener."""
    listener = context.listener
    return Node(context.broker.broker_id, listener.host, listener.port, context.broker.settings.broker_rack)


def broker_ids(context: Context) -> Sequence[int]:
    """Return the ids of the live brokers."""
    return [node.broker_id for node in nodes(context)]


def controller_id(context: Context) -> int:
    """Return the broker for requests that change the cluster.

    Any can; one saves conflicts.
    """
    return broker_ids(context)[0]


def replicas(context: Context, topic: Topic, partition: int) -> tuple[int, ...]:
    """Return the brokers shown as replicas of a partition, the leader first."""
    shown = context.broker.cluster.leaders.replicas(topic.topic_id.bytes, partition)
    return shown or (context.broker.broker_id,)
