"""``stele topics``: list, create, describe, alter and delete topics."""

from __future__ import annotations

import click

from ..records import TopicDescription
from .common import connected, parse_configs, url_option


@click.group()
def topics() -> None:
    """List, create, describe, alter and delete topics."""


@topics.command("list")
@url_option
def list_topics(url: str | None) -> None:
    """List all topics with their partition counts."""
    with connected(url) as client:
        listed = client.topics()
    width = max((len(topic.topic) for topic in listed), default=0)
    for topic in sorted(listed, key=lambda topic: topic.topic):
        click.echo(f"{topic.topic:<{width}}  {topic.partitions:>5} partition{'s'[: topic.partitions != 1]}")


@topics.command()
@click.argument("topic")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of partitions.  [default: the broker's num_partitions]",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A topic configuration, such as retention.ms=60000. May be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@url_option
def create(
    topic: str, partitions: int | None, configs: tuple[str, ...], if_not_exists: bool, url: str | None
) -> None:
    """Create TOPIC and show its configuration."""
    chosen = parse_configs(configs)
    with connected(url) as client:
        make = client.ensure_topic if if_not_exists else client.create_topic
        _show(make(topic, partitions=partitions, configs=chosen))


@topics.command()
@click.argument("topic")
@url_option
def describe(topic: str, url: str | None) -> None:
    """Show partitions, offsets and configuration of TOPIC.

    Over HTTP, its compaction is shown, too.
    """
    with connected(url) as client:
        description = client.describe_topic(topic)
        _show(description)
        compaction = {each.partition: each for each in description.compaction}
        for partition in range(description.partitions):
            earliest = client.list_offset(topic, partition, "earliest")
            latest = client.list_offset(topic, partition, "latest")
            line = f"  partition {partition}: first offset {earliest}, next offset {latest}"
            if state := compaction.get(partition):
                line += f", dirty ratio {state.dirty_ratio:.2f}, compaction {state.cleaner}"
            click.echo(line)
        if "compact" in description.configs.get("cleanup.policy", "") and not compaction:
            click.echo("  for its compaction, describe it over HTTP: --url http://HOST:PORT")


@topics.command()
@click.argument("topic")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="New number of partitions; it can only grow.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a topic configuration. May be repeated.",
)
@click.option(
    "--reset",
    "resets",
    multiple=True,
    metavar="NAME",
    help="Reset a configuration to its default. May be repeated.",
)
@url_option
def alter(
    topic: str, partitions: int | None, configs: tuple[str, ...], resets: tuple[str, ...], url: str | None
) -> None:
    """Change the partitions or configuration of TOPIC."""
    changes: dict[str, str | None] = {**parse_configs(configs), **dict.fromkeys(resets)}
    if partitions is None and not changes:
        raise click.UsageError("nothing to change: pass --partitions, --config or --reset")
    with connected(url) as client:
        _show(client.alter_topic(topic, partitions=partitions, configs=changes))


@topics.command()
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@url_option
def delete(topic: str, yes: bool, url: str | None) -> None:
    """Delete TOPIC and all its records."""
    if not yes:
        click.confirm(f"Delete topic {topic} and all its records?", abort=True)
    with connected(url) as client:
        client.delete_topic(topic)
    click.echo(f"deleted topic {topic}")


def _show(description: TopicDescription) -> None:
    click.echo(f"{description.topic}: {description.partitions} partition{'s'[: description.partitions != 1]}")
    for name, value in sorted(description.configs.items()):
        click.echo(f"  {name}={value}")
