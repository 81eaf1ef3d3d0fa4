"""``stele transactions``.

List, describe and abort transactions, find those that hang.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from ..operations import transaction_admin as operations
from ..records import TopicPartition
from .common import execute, report_options
from .terminal.results import confirm, print_result, table, yes_option

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


@click.group()
def transactions() -> None:
    """List, describe and abort transactions."""


@transactions.command("list")
@click.option("--open", "is_open", is_flag=True, help="Only transactions that are open.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only ids in this state. May be repeated.",
)
@click.option(
    "--open-longer-than",
    "seconds",
    type=click.FloatRange(min=0, max=1e12),
    metavar="SECONDS",
    help="Only transactions that have been open for longer.",
)
@click.option(
    "--pattern", default="", metavar="REGEX", help="Only ids that match a regular expression as a whole."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="Print at most this many.",
)
@report_options
def list_transactions(
    is_open: bool,
    states: tuple[str, ...],
    seconds: float | None,
    pattern: str,
    limit: int,
    form: str,
    url: str | None,
) -> None:
    """List transactional ids with their states.

    The transaction that has been open longest is first.
    """
    operation = operations.ListTransactions(
        states=states + (_OPEN if is_open else ()),
        min_duration_ms=-1 if seconds is None else int(seconds * 1000),
        pattern=pattern,
        limit=limit,
    )
    listed, total = execute(operation, url)
    rows = [(one.transactional_id, one.state, str(one.producer_id), _age(one.open_ms)) for one in listed]
    print_result(
        form,
        {"transactions": listed, "total": total},
        [*table(("transactional id", "state", "producer", "open for"), rows), *_more(len(listed), total)],
    )


@transactions.command()
@click.argument("transactional_id")
@report_options
def describe(transactional_id: str, form: str, url: str | None) -> None:
    """Show the producer and partitions of TRANSACTIONAL_ID's open transaction."""
    described = execute(operations.DescribeTransaction(transactional_id=transactional_id), url)
    print_result(form, described, _described(described))


def _described(described: operations.DescribedTransaction) -> Iterator[str]:
    opened = "" if described.open_ms is None else f", open for {_age(described.open_ms)}"
    yield (
        f"{described.transactional_id}: {described.state}{opened}, timeout {_age(described.timeout_ms)}, "
        f"producer {described.producer_id} epoch {described.producer_epoch}"
    )
    if described.partitions:
        rows = [
            (
                f"{one.topic}-{one.partition}",
                "-" if one.first_offset is None else str(one.first_offset),
                "yes" if one.holds_back else "no",
            )
            for one in described.partitions
        ]
        yield from table(("partition", "first offset", "holds back readers"), rows)


@transactions.command()
@click.argument("transactional_id", required=False)
@click.option("--topic", metavar="TOPIC", help="Abort what a producer has open in a partition of TOPIC.")
@click.option("--partition", type=click.IntRange(0, 2**31 - 1), help="The partition of TOPIC.")
@click.option("--producer-id", type=click.IntRange(0, 2**63 - 1), help="The producer to abort there.")
@yes_option
@report_options
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    yes: bool,
    form: str,
    url: str | None,
) -> None:
    """Abort the open transaction of TRANSACTIONAL_ID, and fence its producer.

    A transaction that hangs has no known id: name its partition and producer, as `stele transactions hanging`
    lists them.
    """
    operation: operations.AbortTransaction | operations.AbortInPartition
    in_partition = (topic, partition, producer_id)
    if transactional_id is not None and in_partition == (None, None, None):
        operation = operations.AbortTransaction(transactional_id=transactional_id)
        name = f"the transaction of {transactional_id}"
    elif transactional_id is None and topic is not None and partition is not None and producer_id is not None:
        where = TopicPartition(topic, partition)
        operation = operations.AbortInPartition(partition=where, producer_id=producer_id)
        name = f"the transaction of producer {producer_id} in {where}"
    else:
        raise click.UsageError("pass a transactional id, or --topic, --partition and --producer-id")
    confirm(f"Abort {name}? Its records are lost, and its producer is fenced.", yes=yes)
    execute(operation, url)
    print_result(form, {"aborted": name}, [f"aborted {name}"])


@transactions.command()
@click.option("--all", "is_all", is_flag=True, help="Also transactions that the coordinator knows.")
@click.option("--topic", metavar="TOPIC", help="Only those in partitions of TOPIC.")
@report_options
def hanging(is_all: bool, topic: str | None, form: str, url: str | None) -> None:
    """List transactions that are open in a partition and that no coordinator will end."""
    operation = operations.ListOpenTransactions(hanging=not is_all, topic=topic)
    listed, total = execute(operation, url)
    document = {"transactions": listed, "total": total}
    if not listed:
        print_result(form, document, ["no transaction is open" if is_all else "no transaction hangs"])
        return
    rows = [
        (
            f"{one.topic}-{one.partition}",
            str(one.producer_id),
            str(one.first_offset),
            _age(one.open_ms),
            "yes" if one.holds_back else "no",
            one.transactional_id or "-",
        )
        for one in listed
    ]
    head = ("partition", "producer", "first offset", "open for", "holds back readers", "transactional id")
    print_result(form, document, [*table(head, rows), *_more(len(listed), total)])


def _age(ms: int | None) -> str:
    return "-" if ms is None else f"{ms / 1000:,.1f} s"


def _more(shown: int, total: int) -> list[str]:
    return [f"{total - shown:,} more"] if total > shown else []
