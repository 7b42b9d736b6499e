"""Which commands may have been delivered before, and which steps are abandoned."""

from __future__ import annotations

import asyncio
import unittest
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

from keb_worker.operation import Operation
from keb_worker.testing import Given

try:
    from keb_worker.worker import Worker
except ImportError:
    Worker = None  # type: ignore[assignment, misc]


@unittest.skipUnless(Worker, "nats-py, cryptography or prometheus_client is not installed")
class TestWorker(unittest.IsolatedAsyncioTestCase):
    def test_command_older_than_connection_may_have_been_delivered(self) -> None:
        worker: Any = SimpleNamespace(_connected_at=1000.0)
        for deliveries, stored_at, want in ((1, 1001, False), (2, 1001, True), (1, 999, True)):
            metadata = SimpleNamespace(num_delivered=deliveries, timestamp=datetime.fromtimestamp(stored_at, UTC))
            msg: Any = SimpleNamespace(metadata=metadata)
            with self.subTest((deliveries, stored_at)):
                self.assertEqual(Worker._is_again(worker, msg), want)

    async def test_command_of_an_old_pull_may_have_been_delivered(self) -> None:
        for age, want in ((2, False), (4, True)):
            clock, connected = [1000.0], []

            async def wait(timeout: float, age: int = age, clock: list[float] = clock) -> Any:
                clock[0] += age  # a step blocks the event loop
                return SimpleNamespace(reply="$JS.ACK.a.b.1.1.1.1.0")

            async def reconnect(connected: list[bool] = connected) -> None:
                connected.append(True)

            nothing = mock.AsyncMock()
            nc = mock.Mock(subscribe=mock.AsyncMock(return_value=SimpleNamespace(next_msg=wait, unsubscribe=nothing)), publish=nothing)
            worker: Any = SimpleNamespace(
                nc=nc, name="a", settings=SimpleNamespace(ramped=False), connected=reconnect, _handle=mock.Mock(), _spawn=mock.Mock())
            with self.subTest(age), mock.patch("keb_worker.worker.time.time", lambda clock=clock: clock[0]):
                await Worker._pull_once(worker, 1)
                self.assertEqual(bool(connected), want)

    async def test_step_that_does_not_return_is_abandoned(self) -> None:
        given = Given(limit=-2.9)
        op = Operation(given.command("Ignores"), "test", None, given.ask, None)  # type: ignore[arg-type]
        op.log = SimpleNamespace(error=lambda text: None)  # type: ignore[assignment]
        worker: Any = SimpleNamespace(_changed=asyncio.Event())
        t: Any = SimpleNamespace(op=op, is_running=True, abandoned=False)
        ticking = asyncio.create_task(Worker._tick(worker, t))
        await worker._changed.wait()
        self.assertTrue(t.abandoned and op.is_overdue(3))
        ticking.cancel()


if __name__ == "__main__":
    unittest.main()
