"""Which commands may have been delivered before."""

from __future__ import annotations

import unittest
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

try:
    from keb_worker.worker import Worker
except ImportError:
    Worker = None  # type: ignore[assignment, misc]


@unittest.skipUnless(Worker, "nats-py, cryptography or prometheus_client is not installed")
class TestWorker(unittest.TestCase):
    def test_command_older_than_connection_may_have_been_delivered(self) -> None:
        worker: Any = SimpleNamespace(_connected_at=1000.0)
        for deliveries, stored_at, want in ((1, 1001, False), (2, 1001, True), (1, 999, True)):
            metadata = SimpleNamespace(num_delivered=deliveries, timestamp=datetime.fromtimestamp(stored_at, UTC))
            msg: Any = SimpleNamespace(metadata=metadata)
            with self.subTest((deliveries, stored_at)):
                self.assertEqual(Worker._is_again(worker, msg), want)


if __name__ == "__main__":
    unittest.main()
