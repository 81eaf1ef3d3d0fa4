"""Many that pause share the turns of the loop, and one that is alone loses none."""

from __future__ import annotations

import asyncio

from app.turns import Turns
from app.work_budget import (
    STEPS_PER_TURN,
    Steps,
    in_background,
    pause,
    sorted_in_turns,
    take_turn,
)

TASKS = 5 * STEPS_PER_TURN + 3
STEPS = 4


async def steps_by_turn(tasks: int) -> list[list[int]]:
    """Let ``tasks`` make ``STEPS`` each, with a pause before each; return who made one in each turn of the loop."""
    made: list[int] = []

    async def work(number: int) -> None:
        for _ in range(STEPS):
            await pause()
            made.append(number)

    running = [asyncio.create_task(work(number)) for number in range(tasks)]
    turns: list[list[int]] = []
    seen = 0
    while seen < tasks * STEPS:
        await asyncio.sleep(0)
        turns.append(made[seen:])
        seen = len(made)
    await asyncio.gather(*running)
    return turns


async def test_of_many_tasks_a_few_go_on_in_each_turn() -> None:
    assert max(len(turn) for turn in await steps_by_turn(TASKS)) == STEPS_PER_TURN


async def test_each_goes_on_before_another_goes_on_twice() -> None:
    made = [number for turn in await steps_by_turn(TASKS) for number in turn]
    assert made == [*range(TASKS)] * STEPS


async def test_a_task_alone_goes_on_in_the_next_turn() -> None:
    turns = await steps_by_turn(1)
    assert [turn for turn in turns if turn] == [[0]] * STEPS
    # The first turn begins the task.
    assert len(turns) <= STEPS + 1


async def test_a_task_that_is_cancelled_while_it_pauses_takes_no_turn_of_the_others() -> None:
    async def pauses() -> None:
        await pause()

    tasks = [asyncio.create_task(pauses()) for _ in range(TASKS)]
    await asyncio.sleep(0)
    for task in tasks[STEPS_PER_TURN:]:
        task.cancel()
    await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks].count(True) == TASKS - STEPS_PER_TURN
    await pause()


async def test_tasks_take_turns_in_the_order_in_which_they_ask() -> None:
    turns, order = Turns(3), list[int]()

    async def work(number: int) -> None:
        await take_turn(turns)
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(11)]
    await asyncio.sleep(0)
    assert order == [0, 1, 2], "a turn that has room does not end"
    most, before = 0, 3
    while len(order) < 11:
        await asyncio.sleep(0)
        most, before = max(most, len(order) - before), len(order)
    assert (most, order) == (3, list(range(11)))
    await asyncio.gather(*tasks)


async def test_what_is_sorted_in_turns_is_sorted() -> None:
    items = [(number * 7919) % 2503 for number in range(2503)]
    assert await sorted_in_turns(items, lambda item: -item) == sorted(items, reverse=True)
    assert await sorted_in_turns(list[int](), lambda item: item) == []


async def test_work_in_the_background_begins_at_once_and_takes_turns_with_others() -> None:
    done: list[int] = []

    def work(number: int) -> Steps[None]:
        for _ in range(2):
            done.append(number)
            yield

    numbers = list(range(2 * STEPS_PER_TURN))
    for number in numbers:
        in_background(work(number))
    assert done == numbers
    await asyncio.sleep(0)
    assert done == numbers + numbers[:STEPS_PER_TURN]
    await asyncio.sleep(0)
    assert done == 2 * numbers
