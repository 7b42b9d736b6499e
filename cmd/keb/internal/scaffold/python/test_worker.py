"""Tests of the steps, without a server."""

import unittest
from unittest import mock

import worker
from keb_worker import Step
from keb_worker.testing import Given, Got, run


class FakeSystem(worker.System):
    """A system in memory. With error it does nothing and raises it."""

    def __init__(self) -> None:
        self.records: set[str] = set()
        self.creates = 0
        self.error: Exception | None = None

    async def create(self, name: str) -> str:
        if self.error:
            raise self.error
        self.creates += 1
        self.records.add(f"record-{name}")
        return f"record-{name}"

    async def delete(self, record: str) -> None:
        if self.error:
            raise self.error
        self.records.discard(record)


class StepsTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.system = FakeSystem()
        patch = mock.patch.object(worker, "system", self.system)
        patch.start()
        self.addCleanup(patch.stop)

    async def run_step(self, step: Step, given: Given, outcome: str) -> Got:
        got = await run(step, given)
        self.assertEqual(got.outcome, outcome, got.error)
        return got

    async def test_create_repeated_creates_one_record(self) -> None:
        first = await self.run_step(worker.create, Given(worker=worker.WORKER), "succeeded")
        await self.run_step(worker.create, first.next(), "succeeded")
        self.assertEqual((self.system.creates, len(self.system.records)), (1, 1))

    async def test_delete_after_create_leaves_nothing(self) -> None:
        created = await self.run_step(worker.create, Given(worker=worker.WORKER), "succeeded")
        deleted = await self.run_step(worker.delete, created.next(), "succeeded")
        await self.run_step(worker.delete, deleted.next(), "skipped")
        self.assertEqual(self.system.records, set())

    async def test_errors_decide_outcome(self) -> None:
        created = await self.run_step(worker.create, Given(worker=worker.WORKER), "succeeded")
        for error, outcome in ((ConnectionError("connection refused"), "retry"), (worker.Rejected("no"), "failed")):
            self.system.error = error
            with self.subTest(outcome):
                await self.run_step(worker.create, Given(worker=worker.WORKER), outcome)
                await self.run_step(worker.delete, created.next(), outcome)


if __name__ == "__main__":
    unittest.main()
