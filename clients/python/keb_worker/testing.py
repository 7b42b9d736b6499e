"""Runs a step in a test as a worker does, without a server: operation in, outcome out, with the stage memory in memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from . import wire
from .execution import Execution, Step
from .operation import Operation, Override, merge_details


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
        now = datetime.now(UTC)
        operation = {
            "id": self.id, "type": self.type, "instanceId": self.instance_id, "plan": dict(self.plan), "context": dict(self.context),
            "runtime": dict(self.runtime), "parameters": dict(self.parameters), "credentials": sorted(self.credentials), **self.more}
        return wire.Command(
            operation, self.stage, step, self.step_attempt, now + timedelta(seconds=self.limit), stage_attempt=self.stage_attempt,
            step_attempt=self.step_attempt, first_tried_at=now - timedelta(seconds=self.first_tried), event=self.event,
            details={w: dict(d) for w, d in self.details.items()},
            stage_memory=bool(self.lost_memory or self.remembered or self.overrides))

    async def ask(self, kind: str, members: dict[str, Any]) -> dict[str, Any]:
        """Answers like the broker and the orchestrator."""
        if kind == "extend":
            granted = datetime.now(UTC) + timedelta(seconds=min(members["seconds"], self.extension))
            return {"executeBefore": wire.format_time(granted)}
        if kind == "keep":
            self.kept[self.worker] = members["value"]
        if kind != "credentials":
            return {"value": self.kept[self.worker]} if kind == "kept" and self.worker in self.kept else {}
        return {"credentials": {"count": self.neighbours} if members["name"] == "neighbours" else self.credentials[members["name"]]}


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
class Got(wire.Result):
    """The result of the step, and what the stage memory holds after it."""

    given: Given = field(default_factory=Given)
    remembered: dict[str, bytes] = field(default_factory=dict)
    overrides: dict[str, list[Override]] = field(default_factory=dict)
    progress: list[tuple[str, int | None]] = field(default_factory=list)  # what the step has reported

    def next(self, **changes: Any) -> Given:
        """Returns the operation for the next step of the stage, or after a retry or a lost memory for the repeated stage."""
        g, details = self.given, dict(self.given.details)
        if self.details:
            details[g.worker] = merge_details(details.get(g.worker, {}), self.details)
        g = replace(g, details=details, lost_memory=False, event=g.event if self.outcome == "retry" and not self.event_key else None)
        if self.outcome in ("retry", "stage lost"):
            g = replace(g, stage_attempt=g.stage_attempt + 1, step_attempt=g.step_attempt + 1, remembered={}, overrides={},
                        first_tried=g.first_tried + self.retry_after)
        else:
            g = replace(g, remembered=self.remembered, overrides=self.overrides)
        return replace(g, **changes)

    def next_with_event(self, data: Any = None) -> Given:
        """Returns the operation after the event that the step waits for has come."""
        assert self.event_key, "the step does not wait for an event"
        now = wire.format_time(datetime.now(UTC))
        return self.next(event={"key": self.event_key, "source": "/test", "id": "1", "receivedAt": now, "data": data})


async def run(step: Step, given: Given | None = None) -> Got:
    """Runs the step once. Every outcome, also after an exception, is a result."""
    given = given or Given()
    memory, log = DictMemory(), logging.LoggerAdapter(logging.getLogger("keb_worker.step"), {"step": step.name})
    if not given.lost_memory:
        memory.update({f"value.{key}": value for key, value in given.remembered.items()})
        for component, entries in given.overrides.items():
            memory[f"override.other-steps.{component}"] = wire.encode_json(
                {"component": component, "cursor": 0, "entries": [asdict(e) for e in entries]})
    progress: list[dict[str, Any]] = []
    op = Operation(given.command(step.name), given.worker, memory, given.ask, log, progress.append)
    result = await Execution(step, op).run()
    assert result
    after = Operation(given.command("later-step"), given.worker, memory, given.ask, log)
    values = {name.removeprefix("value."): value for name, value in memory.items() if name.startswith("value.")}
    overrides = await after.overrides() if memory else {}
    reports = [(notice["message"], notice.get("percent")) for notice in progress]
    return Got(**vars(result), given=given, remembered=values, overrides=overrides, progress=reports)
