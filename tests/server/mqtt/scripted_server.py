"""A server in a process of its own, to be killed: ``python -m ... URL``."""

from __future__ import annotations

import asyncio
import sys

from tests.server.running import Source, running_server


async def serve(url: str) -> None:
    async with running_server(mqtt=url) as server:
        source = await Source.open(server)
        await source.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
