"""A topic that is deleted, or created again, while a request waits causes no internal error, at any wait."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from stele.wire import messages as m

from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from app.errors import SteleError, StorageError
from app.tcp.binary.dispatch import HANDLERS, begin
from app.tcp.binary.handlers.context import BinaryListener
from app.tcp.deferred_response import DeferredResponse
from tests.support.batches import batch_of
from tests.support.binary_samples import TOPIC, sample
from tests.support.deletions import DeletedAt, delete_topic, far_away
from tests.support.listeners import listeners

# Far more than any request waits.
POINTS_MAX = 200


async def refusal_of(at: BinaryListener, request: m.Request) -> SteleError | None:
    """Handle a request as a connection does, which answers a ``SteleError`` and nothing else."""
    try:
        answer = begin(at, request)
        if isinstance(answer, Coroutine):
            answer = await answer
        if isinstance(answer, DeferredResponse):
            await cast("DeferredResponse[Any]", answer).wait()
    except SteleError as error:
        return error
    return None


@pytest.mark.every(6)
@pytest.mark.parametrize("is_made_anew", [False, True], ids=["deleted", "made anew"])
@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
async def test_a_topic_deleted_at_any_wait_of_a_request_is_no_mistake_of_the_broker(
    kind: type[m.Request], is_made_anew: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with listeners(tmp_path) as at:
        at.engine.refresh = far_away  # type: ignore[method-assign]
        for point in count(1):
            await at.broker.create_topic(TOPIC, placement=Placement(partitions=1))
            at.broker.produce(TOPIC, 0, batch_of([b"a", b"b"]), acks=Acks.LEADER)
            deleted = DeletedAt(point, lambda: delete_topic(at.broker, TOPIC, is_made_anew=is_made_anew))
            refusal = await deleted.run(refusal_of(at.binary, sample(kind)))
            assert not isinstance(refusal, StorageError), point
            await delete_topic(at.broker, TOPIC)
            if not deleted.has_deleted:
                break
            assert point < POINTS_MAX
        assert caplog.records == []
