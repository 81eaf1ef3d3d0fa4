"""``stele topics``: list, create, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ..client import Client
from ..records import TopicDescription
from .common import config_option, connected, report_options, reset_option
from .terminal.results import confirm, plural, print_result, yes_option


@click.group()
def topics() -> None:
    """List, create, describe, alter and delete topics."""


@topics.command("list")
@report_options
def list_topics(form: str, url: str | None) -> None:
    """List all topics with their partition counts."""
    with connected(url) as client:
        listed = sorted(client.topics(), key=lambda topic: topic.topic)
    width = max((len(topic.topic) for topic in listed), default=0)
    print_result(
        form,
        [{"topic": topic.topic, "partitions": topic.partitions} for topic in listed],
        [
            f"{topic.topic:<{width}}  {topic.partitions:>5} partition{'s'[: topic.partitions != 1]}"
            for topic in listed
        ],
    )


@topics.command()
@click.argument("topic")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of partitions.  [default: the broker's num_partitions]",
)
@config_option("A topic configuration, such as retention.ms=60000.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@report_options
def create(
    topic: str,
    partitions: int | None,
    configs: dict[str, str | None],
    if_not_exists: bool,
    form: str,
    url: str | None,
) -> None:
    """Create TOPIC."""
    with connected(url) as client:
        make = client.ensure_topic if if_not_exists else client.create_topic
        made = make(topic, partitions=partitions, configs=configs)
    word = "has" if if_not_exists else "created with"
    print_result(form, _document(made), [f"topic {made.topic} {word} {plural(made.partitions, 'partition')}"])


@topics.command()
@click.argument("topic")
@report_options
def describe(topic: str, form: str, url: str | None) -> None:
    """Show partitions, offsets and configuration of TOPIC.

    Over HTTP, its compaction is shown, too.
    """
    with connected(url) as client:
        description = client.describe_topic(topic)
        partitions = [_partition(client, description, number) for number in range(description.partitions)]
    print_result(
        form, {**_document(description), "partitions": partitions}, _described(description, partitions)
    )


def _partition(client: Client, description: TopicDescription, number: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "partition": number,
        "first_offset": client.list_offset(description.topic, number, "earliest"),
        "next_offset": client.list_offset(description.topic, number, "latest"),
    }
    for state in description.compaction:
        if state.partition == number:
            document |= {"dirty_ratio": state.dirty_ratio, "cleaner": state.cleaner}
    return document


def _described(description: TopicDescription, partitions: list[dict[str, Any]]) -> Iterator[str]:
    yield from _lines(description)
    for partition in partitions:
        line = (
            f"  partition {partition['partition']}: first offset {partition['first_offset']}, "
            f"next offset {partition['next_offset']}"
        )
        if "cleaner" in partition:
            line += f", dirty ratio {partition['dirty_ratio']:.2f}, compaction {partition['cleaner']}"
        yield line
    if "compact" in description.configs.get("cleanup.policy", "") and not description.compaction:
        yield "  for its compaction, describe it over HTTP: --url http://HOST:PORT"


@topics.command()
@click.argument("topic")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="New number of partitions; it can only grow.",
)
@config_option("Set a topic configuration.")
@reset_option
@report_options
def alter(
    topic: str,
    partitions: int | None,
    configs: dict[str, str | None],
    resets: tuple[str, ...],
    form: str,
    url: str | None,
) -> None:
    """Change the partitions or configuration of TOPIC."""
    changes = configs | dict.fromkeys(resets)
    if partitions is None and not changes:
        raise click.UsageError("nothing to change: pass --partitions, --config or --reset")
    with connected(url) as client:
        altered = client.alter_topic(topic, partitions=partitions, configs=changes)
    print_result(form, _document(altered), _lines(altered))


@topics.command()
@click.argument("topic")
@yes_option
@report_options
def delete(topic: str, yes: bool, form: str, url: str | None) -> None:
    """Delete TOPIC and all its records."""
    confirm(f"Delete topic {topic} and all its records?", yes=yes)
    with connected(url) as client:
        client.delete_topic(topic)
    print_result(form, {"deleted": topic}, [f"deleted topic {topic}"])


def _document(description: TopicDescription) -> dict[str, Any]:
    return {
        "topic": description.topic,
        "partitions": description.partitions,
        "configs": dict(sorted(description.configs.items())),
    }


def _lines(description: TopicDescription) -> Iterator[str]:
    yield f"{description.topic}: {plural(description.partitions, 'partition')}"
    for name, value in sorted(description.configs.items()):
        yield f"  {name}={value}"
