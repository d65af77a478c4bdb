"""Several pieces of asynchronous work as one."""

import asyncio
from collections.abc import Coroutine


async def together(*work: Coroutine[object, object, None]) -> None:
    """Do all at once; the first failure cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
