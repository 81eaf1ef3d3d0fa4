"""Ids of groups and of members are any text: over HTTP each stands in a path as one piece, and reaches only what it names."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from stele import Client
from stele.operations import group_admin, leases
from stele.operations import groups as members
from stele.testing import BrokerProcess, run_broker

from tests.support.warm_processes import run_stele

TOPIC = "orders"
IDS = ["a/b", "/", "a/", "//x", "g/members/m", "a%2Fb", "50%", "a b?c#d", "ä/ö", "..", ".", "../topics"]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker(environment={"STELE_SAMPLE_INTERVAL_MS": "100"}) as running:
        with Client(running.binary_url) as client:
            client.create_topic(TOPIC)
            client.produce(TOPIC, "x")
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.http_url) as client:
        yield client


def leave_offsets(client: Client, group: str) -> None:
    polled = client.call(leases.Poll(group=group, topics=[TOPIC], poll_id="1"))
    assert polled.lease is not None
    client.call(leases.Ack(group=group, lease=polled.lease))


def groups(client: Client) -> set[str]:
    found, _ = client.call(group_admin.ListGroups())
    return {group for group, _ in found}


@pytest.mark.parametrize("group", IDS)
def test_a_group_of_any_id_is_polled_seen_reset_and_deleted(client: Client, group: str) -> None:
    leave_offsets(client, group)
    assert client.call(group_admin.DescribeGroup(group=group)).group == group
    ((partition, before, after, _),) = client.call(group_admin.ResetOffsets(group=group, to="earliest"))
    assert (partition.topic, before, after) == (TOPIC, 1, 0)
    assert group in groups(client)
    client.call(group_admin.DeleteGroup(group=group))
    assert group not in groups(client)


@pytest.mark.parametrize("group", IDS)
def test_a_member_of_any_id_claims_commits_and_leaves(client: Client, group: str) -> None:
    joined = client.call(
        members.JoinGroup(group=group, topics=[TOPIC], session_timeout_ms=10_000, client_id="../team/app")
    )
    who = {"group": group, "member_id": joined.member_id}
    beat = client.call(members.Heartbeat(**who, generation=joined.generation))
    (partition,) = beat.assigned
    client.call(members.Claim(**who, generation=beat.generation, **partition._asdict()))
    client.call(members.Commit(**who, generation=beat.generation, **partition._asdict(), offset=1))
    assert client.call(members.Committed(group=group, **partition._asdict())) == 1
    client.call(members.LeaveGroup(**who))
    assert client.call(group_admin.DescribeGroup(group=group)).members == []
    client.call(group_admin.DeleteGroup(group=group))


@pytest.mark.every(4)
@pytest.mark.parametrize("group", ["a/b", "50%", "..", "victim/members/m1"])
def test_the_command_line_takes_any_id(broker: BrokerProcess, client: Client, group: str) -> None:
    leave_offsets(client, group)

    def run(*arguments: str) -> str:
        done = run_stele("groups", *arguments, "--url", broker.http_url)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    assert run("describe", group).startswith(f"{group}: Stable")
    assert f"{group}: 1 offsets set" in run("reset", group, "--to", "latest", "--yes")
    assert run("delete", group, "--yes") == f"deleted group {group}\n"


def test_deleting_a_group_takes_no_member_out_of_another(client: Client) -> None:
    joined = client.call(members.JoinGroup(group="victim", topics=[TOPIC], session_timeout_ms=10_000))
    group = f"victim/members/{joined.member_id}"
    leave_offsets(client, group)
    client.call(group_admin.DeleteGroup(group=group))
    (member,) = client.call(group_admin.DescribeGroup(group="victim")).members
    assert member.member_id == joined.member_id


def test_deleting_a_topic_that_cannot_be_purges_no_other(broker: BrokerProcess) -> None:
    answer = httpx.delete(f"{broker.http_url}/v1/topics/{quote(f'{TOPIC}/records', safe='')}")
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-topic-name")
    kept = httpx.get(f"{broker.http_url}/v1/topics/{TOPIC}/partitions/0/records?from=earliest").json()
    assert len(kept["records"]) == 1


def test_a_path_with_an_encoded_slash_is_never_redirected_to_what_it_does_not_name(
    broker: BrokerProcess,
) -> None:
    for path in ("/v1/groups/a%2Fb/", "/v1%2Fgroups", "/v1/groups%2F"):
        answer = httpx.get(broker.http_url + path)
        assert (answer.status_code, answer.headers.get("location")) == (404, None), path


def test_all_that_is_not_a_slash_is_decoded_before_it_is_matched(broker: BrokerProcess) -> None:
    answer = httpx.get(f"{broker.http_url}/v1/group%73/a%2fb/partitions/{TOPIC}/%30/offse%74")
    assert (answer.status_code, answer.json()["offset"]) == (200, None)
