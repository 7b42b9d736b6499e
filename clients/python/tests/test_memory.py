"""The stage memory in a cluster, whose replicas may lag."""

from __future__ import annotations

import base64
import json
import os
import unittest
from types import SimpleNamespace
from typing import Any

try:
    from keb_worker.memory import Keyring, StageMemory, encode_key, stage_prefix
except ImportError:
    Keyring = None  # type: ignore[assignment, misc]

SUBJECTS = "$KV.keb_stage."
COMMAND = {"operation": {"id": "op"}, "stage": "s", "stageAttempt": 1}


class Lagging:
    """A bus with a bucket that has a marker and values. A replica lacks the last ones for a number of reads."""

    def __init__(self, keys: Keyring, values: dict[str, bytes], reads: int, lacks: int) -> None:
        prefix = SUBJECTS + stage_prefix("op", "s", 1)
        sealed = {encode_key(name): value for name, value in values.items()}
        self.messages = {prefix + "=": b""} | {
            prefix + name: keys.seal(value, (prefix + name).removeprefix(SUBJECTS)).encode() for name, value in sealed.items()}
        self.reads, self.lacks, self.answers = reads, lacks, list[Any]()
        self.missing = 0  # how often the bucket is missing

    def replica(self) -> list[Any]:
        self.reads -= 1
        messages = list(self.messages.items())
        return [SimpleNamespace(headers={"Nats-Subject": subject}, data=data)
                for subject, data in (messages[:-self.lacks] if self.reads >= 0 else messages)]

    async def request(self, subject: str, data: bytes, timeout: float, headers: Any) -> Any:
        if subject == "$JS.API.STREAM.INFO.KV_keb_stage":
            wanted = json.loads(data)["subjects_filter"]
            matching = [s for s in self.messages if s == wanted or wanted.endswith("*") and s.startswith(wanted[:-1])]
            return SimpleNamespace(data=json.dumps({"state": {"subjects": dict.fromkeys(matching, 1)} if matching else {}}))
        found = (m for m in self.replica() if subject.endswith("." + m.headers["Nats-Subject"]))
        return next(found, SimpleNamespace(headers={"Status": "404", "Description": "Message Not Found"}))

    def new_inbox(self) -> str:
        return "_INBOX.test"

    async def subscribe(self, inbox: str) -> Any:
        return SimpleNamespace(next_msg=self._next, unsubscribe=self._end)

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        if self.missing:
            self.missing -= 1
            self.answers = [SimpleNamespace(headers={"Status": "503"})]
            return
        self.answers = [*self.replica(), SimpleNamespace(headers={"Status": "204", "Nats-Num-Pending": "0"})]

    async def _next(self, timeout: float) -> Any:
        return self.answers.pop(0)

    async def _end(self) -> None:
        self.answers.clear()


@unittest.skipUnless(Keyring, "cryptography is not installed")
class TestReplicaLags(unittest.IsolatedAsyncioTestCase):
    def memory(self, values: dict[str, bytes], reads: int, lacks: int) -> StageMemory:
        keys = Keyring("a:" + base64.b64encode(os.urandom(32)).decode())
        return StageMemory(Lagging(keys, values, reads, lacks), keys, COMMAND)

    async def test_missing_value_is_read_again(self) -> None:
        memory = self.memory({"value.token": b"secret"}, reads=2, lacks=1)
        self.assertEqual(await memory.read("value.token"), b"secret")
        self.assertIsNone(await memory.read("value.other"))

    async def test_missing_marker_is_not_lost(self) -> None:
        self.assertFalse(await self.memory({}, reads=2, lacks=1).is_lost())

    async def test_incomplete_list_is_read_again(self) -> None:
        memory = self.memory({"override.a": b"1", "value.b": b"2", "override.c": b"3"}, reads=2, lacks=2)
        self.assertEqual(await memory.list("override."), {"override.a": b"1", "override.c": b"3"})

    async def test_missing_bucket_is_waited_for(self) -> None:
        memory = self.memory({"override.a": b"1"}, reads=0, lacks=0)
        memory._nc.missing = 2
        self.assertEqual(await memory.list("override."), {"override.a": b"1"})


if __name__ == "__main__":
    unittest.main()
