"""``stele topics``: administration."""

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
    """Names and partition counts."""
    with connected(url) as client:
        found = client.topics()
    width = max((len(topic.topic) for topic in found), default=0)
    for topic in sorted(found, key=lambda topic: topic.topic):
        click.echo(f"{topic.topic:<{width}}  {topic.partitions:>5} partition{'s'[: topic.partitions != 1]}")


@topics.command()
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(min=1), help="How many; the broker's default if not given.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="E.g. retention.ms=60000.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists as it is.")
@url_option
def create(
    topic: str, partitions: int | None, configs: tuple[str, ...], if_not_exists: bool, url: str | None
) -> None:
    """Create TOPIC."""
    chosen = parse_configs(configs)
    with connected(url) as client:
        make = client.ensure_topic if if_not_exists else client.create_topic
        _show(make(topic, partitions=partitions, configs=chosen))


@topics.command()
@click.argument("topic")
@url_option
def describe(topic: str, url: str | None) -> None:
    """Show TOPIC's partitions, offsets and configuration."""
    with connected(url) as client:
        description = client.describe_topic(topic)
        _show(description)
        for partition in range(description.partitions):
            earliest = client.list_offset(topic, partition, "earliest")
            latest = client.list_offset(topic, partition, "latest")
            click.echo(f"  partition {partition}: offsets {earliest} to {latest} (the next to be written)")


@topics.command()
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(min=1), help="A larger number of partitions.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Set a value.")
@click.option("--reset", "resets", multiple=True, metavar="NAME", help="Go back to the default.")
@url_option
def alter(
    topic: str, partitions: int | None, configs: tuple[str, ...], resets: tuple[str, ...], url: str | None
) -> None:
    """Change TOPIC; what is not named stays as it is."""
    changes: dict[str, str | None] = {**parse_configs(configs), **dict.fromkeys(resets)}
    if partitions is None and not changes:
        raise click.UsageError("nothing to change; give --partitions, --config or --reset")
    with connected(url) as client:
        _show(client.alter_topic(topic, partitions=partitions, configs=changes))


@topics.command()
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
def delete(topic: str, yes: bool, url: str | None) -> None:
    """Delete TOPIC and all its records."""
    if not yes:
        click.confirm(f"Delete topic {topic} and all its records?", abort=True)
    with connected(url) as client:
        client.delete_topic(topic)
    click.echo(f"{topic} deleted")


def _show(description: TopicDescription) -> None:
    click.echo(f"{description.topic}: {description.partitions} partition{'s'[: description.partitions != 1]}")
    for name, value in sorted(description.configs.items()):
        click.echo(f"  {name}={value}")
