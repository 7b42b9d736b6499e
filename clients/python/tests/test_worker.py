"""Which commands may have been delivered before, and which steps are abandoned."""

from __future__ import annotations

import asyncio
import unittest
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

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
