"""Runs a step in a test as a worker does, without a server: operation in, outcome out, with the stage memory in memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from . import wire
from .operation import Execution, Log, Operation, Override, Step, merge_details


def _now(seconds: float = 0) -> str:
    return wire.format_time(datetime.now(UTC) + timedelta(seconds=seconds))


@dataclass
class Given:
    """The operation of a step. Without arguments it is a first provisioning try without details and parameters."""

    type: str = "provision"
    plan: Mapping[str, str] = field(default_factory=lambda: {"id": "plan", "name": "azure"})
    context: Mapping[str, str] = field(default_factory=dict)
    runtime: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: More members of the operation, such as update, upgrade, temporary and userAgent, with their names in docs/events.md.
    more: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by worker
    credentials: Mapping[str, Any] = field(default_factory=dict)  # by name
    neighbours: int = 0
    kept: dict[str, Any] = field(default_factory=dict)  # by worker; the step changes it
    worker: str = "test"
    stage: str = "create_runtime"
    stage_attempt: int = 1
    step_attempt: int = 1
    event: dict[str, Any] | None = None
    first_tried: float = 0  # seconds ago
    limit: float = 60
    extension: float = 86_400  # the most seconds that op.extend grants
    remembered: Mapping[str, bytes] = field(default_factory=dict)  # by earlier steps of the stage
    overrides: Mapping[str, list[Override]] = field(default_factory=dict)
    lost_memory: bool = False  # as if the stage memory was used and lost
    id: str = "0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b10"
    instance_id: str = "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20"

    def command(self, step: str) -> wire.Command:
        operation = {"id": self.id, "type": self.type, "instanceId": self.instance_id, "plan": self.plan, "context": self.context,
                     "runtime": self.runtime, "parameters": self.parameters, "credentials": sorted(self.credentials), **self.more}
        command = {"operation": operation, "details": self.details, "stage": self.stage, "step": step, "cursor": self.step_attempt,
                   "dispatch": 1, "stageAttempt": self.stage_attempt, "stepAttempt": self.step_attempt, "event": self.event,
                   "stageMemory": bool(self.lost_memory or self.remembered or self.overrides),
                   "firstTriedAt": _now(-self.first_tried), "executeBefore": _now(self.limit), "traceparent": ""}
        return wire.Command(wire.decode_json(wire.encode_json(command)))

    async def ask(self, kind: str, members: dict[str, Any]) -> dict[str, Any]:
        """Answers like the broker and the orchestrator."""
        match kind:
            case "extend":
                return {"executeBefore": _now(min(members["seconds"], self.extension))}
            case "keep":
                self.kept[self.worker] = members["value"]
            case "kept" if self.worker in self.kept:
                return {"value": self.kept[self.worker]}
            case "credentials":
                name = members["name"]
                return {"credentials": {"count": self.neighbours} if name == "neighbours" else self.credentials[name]}
        return {}


class DictMemory(dict[str, bytes]):
    """A stage memory in a dict."""

    async def put(self, name: str, value: bytes) -> None:
        self[name] = value

    async def read(self, name: str) -> bytes | None:
        return self.get(name)

    async def list(self, prefix: str) -> dict[str, bytes]:
        return {name: value for name, value in self.items() if name.startswith(prefix)}

    async def is_lost(self) -> bool:
        return not self


@dataclass
class Got:
    """The result of the step, and what the stage memory holds after it."""

    given: Given
    outcome: str
    message: str
    retry_after: float  # seconds; 0 is the time in the process file
    event_key: str  # of the event that the step waits for
    error: dict[str, str] | None  # component, reason and message
    details: dict[str, Any] | None  # the members of the worker's own details that change
    removed: list[str]  # what the step has removed
    panicked: bool  # the step raised an exception that is no StepError
    stage_memory: bool  # the step has written into it
    remembered: dict[str, bytes]
    overrides: dict[str, list[Override]]
    progress: list[tuple[str, int | None]]  # what the step has reported

    def next(self, **changes: Any) -> Given:
        """Returns the operation for the next step of the stage, or after a retry or a lost memory for the repeated stage."""
        g, repeats = self.given, int(self.outcome in ("retry", "stage lost"))
        saved = merge_details(g.details.get(g.worker, {}), self.details or {})
        given = replace(
            g, details={**g.details, g.worker: saved} if self.details else g.details, lost_memory=False,
            event=g.event if self.outcome == "retry" and not self.event_key else None,
            stage_attempt=g.stage_attempt + repeats, step_attempt=g.step_attempt + repeats, first_tried=g.first_tried + self.retry_after,
            remembered={} if repeats else self.remembered, overrides={} if repeats else self.overrides)
        return replace(given, **changes)

    def next_with_event(self, data: Any = None) -> Given:
        """Returns the operation after the event that the step waits for has come."""
        assert self.event_key, "the step does not wait for an event"
        return self.next(event={"key": self.event_key, "source": "/test", "id": "1", "receivedAt": _now(), "data": data})


async def run(step: Step, given: Given | None = None) -> Got:
    """Runs the step once. Every outcome, also after an exception, is a result."""
    given = given or Given()
    memory, log = DictMemory(), Log(logging.getLogger("keb_worker.step"), {"step": step.name})
    if not given.lost_memory:
        memory.update({f"value.{key}": value for key, value in given.remembered.items()})
        for component, entries in given.overrides.items():
            stored = {"component": component, "cursor": 0, "entries": [asdict(e) for e in entries]}
            memory[f"override.other-steps.{component}"] = wire.encode_json(stored)
    op = Operation(given.command(step.name), given.worker, memory, given.ask, log)
    r = await Execution(step, op).run() or {}
    after = Operation(given.command("later-step"), given.worker, memory, given.ask, log)
    return Got(
        given, r["outcome"], r.get("message", ""), r.get("retryAfter", 0), (r.get("event") or {}).get("key", ""), r.get("error"),
        r["details"], r["removed"] or [], r.get("panicked", False), r.get("stageMemory", False),
        remembered={name.removeprefix("value."): value for name, value in memory.items() if name.startswith("value.")},
        overrides=await after.overrides() if memory else {},
        progress=[(notice["message"], notice.get("percent")) for notice in op.notices])
