"""A response that waits for a future which many requests may share."""

from __future__ import annotations

import asyncio

from app.tcp.deferred_response import DeferredResponse


def deferred(future: asyncio.Future[None], *, timeout_ms: int) -> DeferredResponse[str]:
    return DeferredResponse(
        future=future, timeout_ms=timeout_ms, make=lambda has_ended: "ended" if has_ended else "timed out"
    )


async def test_it_is_made_when_its_future_ends_however_that_ends() -> None:
    loop = asyncio.get_running_loop()
    good, bad = loop.create_future(), loop.create_future()
    waits = [asyncio.create_task(deferred(future, timeout_ms=60_000).wait()) for future in (good, bad)]
    await asyncio.sleep(0)
    good.set_result(None)
    bad.set_exception(OSError("the sync failed"))
    assert await asyncio.gather(*waits) == ["ended", "ended"]
    assert isinstance(bad.exception(), OSError)


async def test_a_timeout_leaves_the_future_to_the_others_that_wait_for_it() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    patient = asyncio.create_task(deferred(future, timeout_ms=60_000).wait())
    assert await deferred(future, timeout_ms=1).wait() == "timed out"
    assert not future.done()
    future.set_result(None)
    assert await patient == "ended"
