"""The differences that may stay, each with its reason. ``docs/conformance.md`` shows this list as a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MASKED = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """One difference. Regular expressions; ``mask`` and ``calls`` are searched for, the others match whole lines.

    ``calls``: in which calls (their text). ``mask``: what becomes ``by`` in the lines of
    both brokers, behind the mask's groups, which stay. ``kafka``, ``stele``: lines that
    only that broker has, after all masks. ``what`` and ``reason`` are for readers.
    """

    what: str
    reason: str
    calls: str = ""
    mask: str | None = None
    by: str = MASKED
    kafka: str | None = None
    stele: str | None = None
    # It depends on the moment, so a run without it proves nothing.
    is_occasional: bool = False

    def covers(self, call: str) -> bool:
        return re.search(self.calls, call) is not None

    def masked(self, lines: Sequence[str]) -> list[str]:
        if self.mask is None:
            return list(lines)
        return [re.sub(self.mask, self._masked, line) for line in lines]

    def _masked(self, match: re.Match[str]) -> str:
        return "".join(group for group in match.groups() if group) + self.by

    def without(self, lines: Sequence[str], *, pattern: str | None) -> list[str]:
        return [line for line in lines if pattern is None or not re.fullmatch(pattern, line)]


# How a tool says that it was refused, and that it was not.
_REFUSED = r"out: Error while executing [\w ]+ command : .*|err: .*|exit code 1"
_DONE = r"out: (Created|Completed|Altered|Deleted) .*|exit code 0"

_NOT_SERVED = (
    "InitializeShareGroupState|ReadShareGroupState|WriteShareGroupState|DeleteShareGroupState"
    "|ReadShareGroupStateSummary"
)

_VALUES_OF_ITS_OWN = (
    r"auto\.create\.topics\.enable|auto\.leader\.rebalance\.enable|broker\.id|default\.replication\.factor"
    r"|fetch\.max\.bytes|group\.consumer\.max\.size|group\.coordinator\.rebalance\.protocols|group\.max\.size"
    r"|listener\.security\.protocol\.map|listeners|log\.cleaner\.enable|log\.dirs?"
    r"|log\.flush\.offset\.checkpoint\.interval\.ms|log\.flush\.scheduler\.interval\.ms"
    r"|log\.retention\.check\.interval\.ms|max\.connections|node\.id|num\.network\.threads"
    r"|offsets\.topic\.num\.partitions|offsets\.topic\.replication\.factor|process\.roles"
    r"|sasl\.enabled\.mechanisms|socket\.listen\.backlog\.size|socket\.request\.max\.bytes"
)

ACCEPTED: tuple[Accepted, ...] = (
    Accepted(
        what="The sentence of an error",
        mask=r"(org\.apache\.kafka\.common\.errors\.\w+: |Error while executing [\w ]+ command : "
        r"|Could not upgrade [\w.]+ to \d+\. |request for broker ID \d+ failed: ).*",
        reason="The error code, and with it the exception and the exit code, is Kafka's. The sentence is Stele's own:"
        " what happened, to what, and what to do.",
    ),
    Accepted(
        what="A warning while a topic is created by its first use",
        kafka=r"err: \[TIME\] WARN .* The metadata response from the cluster reported a recoverable issue .*",
        reason="Kafka creates the topic in the background and first answers that it does not exist; Stele creates it"
        " before it answers.",
    ),
    Accepted(
        what="Warnings of a client that repeats a request",
        kafka=r"err: \[TIME\] WARN .*(retrying|Retrying).*",
        stele=r"err: \[TIME\] WARN .*(retrying|Retrying).*",
        reason="Whether a request comes too early is a matter of the moment; the result is compared.",
        is_occasional=True,
    ),
    Accepted(
        what="`min.insync.replicas=1` among the configurations of every topic",
        mask=r" min\.insync\.replicas=1$|(?<=[ ,])min\.insync\.replicas=1,"
        r"|(?<=[{ ])DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1(?:, )?",
        by="",
        reason="A new Kafka 4 cluster has the feature eligible.leader.replicas, which stores this default; an upgraded"
        " one has not, and Stele has no replicas to elect.",
    ),
    Accepted(
        what="… so every topic has an override",
        calls="^kafka-topics --describe --topics-with-overrides",
        kafka=r"out: Topic: \S+ TopicId: TOPIC-ID PartitionCount: \d+ ReplicationFactor: 1 Configs:",
        reason="As above.",
    ),
    Accepted(
        what="… and the cluster a dynamic default",
        calls="^kafka-configs --describe --entity-type brokers",
        kafka=r"out: min\.insync\.replicas=1 sensitive=false synonyms=\{\}",
        reason="As above.",
    ),
    Accepted(
        what="`__consumer_offsets` before the first group",
        calls=r"^kafka-topics (?!.*--topic )|^kafka-configs --describe --entity-type topics",
        kafka=r"out: ",
        stele=r"out: (Topic: |Dynamic configs for topic )?__consumer_offsets.*"
        r"|out: (cleanup\.policy|compression\.type|segment\.bytes|stele\.storage)=.*",
        reason="In Stele it is a view of the committed offsets and always there; Kafka creates it for the first group.",
    ),
    Accepted(
        what="The end offsets of `__consumer_offsets`",
        calls="^kafka-get-offsets",
        mask=r"(__consumer_offsets:\d+:)\d+",
        reason="Kafka counts every commit and group change since its creation; Stele's view has its own numbering.",
    ),
    Accepted(
        what="Which record of a partition is the newest",
        calls=r"^kafka-get-offsets .*--time (-3|max-timestamp)",
        mask=r"(orders:\d+:)\d+",
        reason="The producer dates the records as it sends them: in one run several are of the same millisecond, in"
        " another they are not.",
        is_occasional=True,
    ),
    Accepted(
        what="How many records `__consumer_offsets` has",
        calls="--topic __consumer_offsets --from-beginning",
        mask=r"(Processed a total of )[1-9]\d*( messages)",
        kafka=r"out: \.(key|value).*",
        stele=r"out: \.(key|value).*",
        reason="Kafka keeps superseded commits and tombstones until it compacts; Stele's view keeps fewer of them."
        " A monitor arrives at the same offsets.",
    ),
    Accepted(
        what="The files of `__consumer_offsets`",
        calls="^kafka-log-dirs",
        kafka=r".*__consumer_offsets-\d+.*",
        reason="Stele's view has none.",
    ),
    Accepted(
        what="Deleting `__consumer_offsets`",
        calls="^kafka-topics --delete --topic __consumer_offsets",
        kafka=_DONE,
        stele=_REFUSED,
        reason="Kafka deletes the committed offsets of all groups with it; Stele refuses.",
    ),
    Accepted(
        what="The order of topics beside `__consumer_offsets`",
        calls="^kafka-configs --describe --entity-type topics",
        kafka=r"out: Dynamic configs for topic [\w.]+ are:",
        stele=r"out: Dynamic configs for topic [\w.]+ are:",
        reason="It is that of a hash table with one topic more.",
    ),
    Accepted(
        what="Topic configurations `stele.…`",
        calls="^kafka-configs --describe .*--all",
        stele=r"out: stele\..*",
        reason="Stele's own.",
    ),
    Accepted(
        what="Producer ids",
        calls="^kafka-transactions (describe-producers|list|describe )",
        mask=r"^(out: )\d+(?= \d+ -?\d+ -?\d+ TIME )|^(out: tx 1 )\d+|^(out: 1 tx )\d+",
        reason="Any numbers that are not in use; clients ask in an order of their own.",
    ),
    Accepted(
        what="The epoch of the transaction coordinator",
        calls="^kafka-transactions describe-producers --topic perf",
        mask=r"^(out: \S+ \d+ )\d+(?= -1 TIME )",
        reason="In Stele it rises with each start of the broker.",
    ),
    Accepted(
        what="When a transaction that has ended began",
        calls="^kafka-transactions describe --transactional-id tx",
        mask=r"^(out: 1 tx \S+ \d+ CompleteCommit \d+ ).*",
        reason="Kafka shows the start of the last transaction, and how long ago it was; Stele only that of an open one.",
    ),
    Accepted(
        what="The APIs of the state of share groups",
        calls="^kafka-broker-api-versions",
        kafka=rf"out: ({_NOT_SERVED})\(\d+\): .*",
        stele=rf"out: ({_NOT_SERVED})\(\d+\): UNSUPPORTED,",
        reason="Not served. Brokers send these to each other.",
    ),
    Accepted(
        what="Older versions of some APIs",
        calls="^kafka-broker-api-versions",
        mask=r"^(out: (?:Produce|Fetch|ListOffsets|OffsetCommit|OffsetFetch)\(\d+\): )\d+(?= to)",
        reason="Kafka 4 has dropped them; Stele serves clients that still send them.",
    ),
    Accepted(
        what="Features of the cluster",
        calls="^kafka-features describe",
        kafka=r"out: Feature: (?!(?:transaction|group|share)\.version).*",
        mask=r"^(out: Feature: (?:transaction|group)\.version .* Epoch: )\d+"
        r"|^(out: Feature: share\.version SupportedMinVersion: 0 ).*",
        reason="A feature switches on what brokers of several versions must agree on. Stele has"
        " `group.version`, `share.version` and `transaction.version`, which are fixed. Level 2 of"
        " `share.version` is of Kafka 4.4.",
    ),
    Accepted(
        what="Configurations of dead letters",
        calls="^kafka-configs --describe --(topic|broker) .*--all",
        stele=r"out: errors\.deadletterqueue\..*",
        reason="Kafka has them from 4.4 on (KIP-1191).",
    ),
    Accepted(
        what="The log of the controllers",
        calls="^kafka-metadata-quorum",
        mask=r"^(out: (?:LeaderEpoch|HighWatermark|CurrentVoters): ).*|^(out: 1 A+ )\d+(?= 0 TIME TIME Leader)",
        reason="Stele's catalog is no Raft log: it has no epoch, no offsets and no listener.",
    ),
    Accepted(
        what="Loggers of the broker",
        calls="^kafka-configs --describe --broker-logger",
        kafka=r"out: [\w.$]+=\w+ sensitive=false synonyms=\{\}",
        stele=r"out: [\w.]+=\w+ sensitive=false synonyms=\{\}",
        reason="They are the classes of Kafka, and the modules of Stele.",
    ),
    Accepted(
        what="… so one of Kafka's is unknown",
        calls="^kafka-configs --alter --broker-logger",
        kafka=r"err: .*",
        stele=r"err: Invalid broker logger\(s\): kafka\.server\.KafkaApis",
        reason="As above.",
    ),
    Accepted(
        what="Configurations of the broker",
        calls="^kafka-configs --describe --broker 1 --all",
        kafka=r"out: [\w.]+=.*",
        stele=rf"out: ({_VALUES_OF_ITS_OWN})=.*",
        reason="Stele shows those that it has, with its own limits and intervals; the control has some from its"
        " configuration file.",
    ),
    Accepted(
        what="`min.insync.replicas` of a broker",
        calls="--broker 1 .*min.insync.replicas",
        kafka=r"err: .*|exit code 1",
        stele=_DONE,
        reason="Kafka refuses it because of the feature eligible.leader.replicas.",
    ),
    Accepted(
        what="… and has none to show",
        calls="^kafka-configs --describe --broker 1$",
        stele=r"out: min\.insync\.replicas=1 sensitive=false .*",
        reason="As above.",
    ),
    Accepted(
        what="`log.retention.ms=-7` of a broker",
        calls=r"--broker 1 --add-config log\.retention\.ms=-7",
        kafka=_DONE,
        stele=_REFUSED,
        reason="Kafka stores it; Stele refuses a retention that means nothing.",
    ),
    Accepted(
        what="Thread pools",
        calls="--broker 1 .*(num.io|background).threads",
        kafka=rf"{_DONE}|err: .*InvalidRequestException: …",
        stele=_REFUSED,
        reason="Stele has none of these; a setting without effect would mislead.",
    ),
    Accepted(
        what="`max.connections` while the broker runs",
        calls="--broker 1 --add-config max.connections=1000",
        kafka=_DONE,
        stele=_REFUSED,
        reason="It is read at the start, from `STELE_CONNECTIONS_MAX`; the error names that setting.",
    ),
    Accepted(
        what="… and afterwards",
        calls="^kafka-configs --describe --broker 1$",
        kafka=r"out: max\.connections=1000 .*",
        reason="As above; Kafka may answer before it shows the change.",
        is_occasional=True,
    ),
    Accepted(
        what="The default of `log.flush.interval.ms`",
        calls="^kafka-configs --describe --broker 1$",
        mask=r"(out: log\.flush\.interval\.ms=\d+ sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:"
        r"log\.flush\.interval\.ms=\d+).*",
        reason="Kafka's comes from `log.flush.scheduler.interval.ms`; Stele's own interval has another meaning.",
    ),
    Accepted(
        what="Unknown configurations of a broker",
        calls=r"--broker 1 --add-config no\.such\.config",
        kafka=_DONE,
        stele=_REFUSED,
        reason="Kafka stores any name for plug-ins; Stele has no plug-ins, and a misspelt name is an error.",
    ),
    Accepted(
        what="… and what was stored of threads and unknown names",
        calls="^kafka-configs --describe --broker 1$",
        kafka=r"out: (num\.io\.threads|background\.threads|no\.such\.config)=.*",
        reason="As above.",
    ),
)
