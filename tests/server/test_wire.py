from __future__ import annotations

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from audiokv.server.wire import Binary, WebSocketWire, pack
from audiokv.streaming.messages import Notice, decode_server


def test_messages_are_packed_as_utf_8() -> None:
    notice = Notice("c", "größer", "r")
    assert "größer".encode() in pack(notice)
    assert decode_server(pack(notice).decode()) == notice


async def test_a_wire_sends_text_and_knows_who_closed() -> None:
    wires: list[WebSocketWire] = []

    async def handler(connection: ServerConnection) -> None:
        wire = WebSocketWire(connection)
        wires.append(wire)
        assert not wire.is_close_acknowledged
        assert len(wire.name) == 8
        message = await wire.receive()
        assert isinstance(message, bytes)
        await wire.send(message)
        await wire.close(1000, "done")

    async with serve(handler, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}") as client:
            await client.send("ä".encode())
            assert await client.recv() == "ä"
            await client.wait_closed()
            assert (client.close_code, client.close_reason) == (1000, "done")
    assert wires[0].is_close_acknowledged


async def test_an_aborted_wire_is_not_acknowledged() -> None:
    wires: list[WebSocketWire] = []

    async def handler(connection: ServerConnection) -> None:
        wires.append(WebSocketWire(connection))
        wires[0].abort()
        await connection.wait_closed()

    async with serve(handler, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}") as client:
            await client.wait_closed()
            assert client.close_code == 1006
    assert not wires[0].is_close_acknowledged


async def test_a_wire_sends_binary_messages_too() -> None:
    async def handler(connection: ServerConnection) -> None:
        await WebSocketWire(connection).send(Binary(b"\x00\xff"))

    async with serve(handler, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}") as client:
            assert await client.recv() == b"\x00\xff"
