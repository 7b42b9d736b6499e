"""What a step receives, and what it returns or raises."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from . import wire
from .mask import Secrets

MAX_VALUE = 256 << 10  # of saved details and kept values, in bytes of JSON
MAX_STORED = 512 << 10  # of details as the database writes them, and of a remembered value
MAX_PROGRESS = 200
KEPT_BROKEN = "the kept value cannot be opened: see the broker's log"


class StepError(Exception):
    """A classified error. It fails the step, or, if it is temporary, retries it. Operators see its texts, so they must hold no secret."""

    temporary = False

    def __init__(self, message: str, *, component: str = "", reason: str = "", temporary: bool | None = None) -> None:
        super().__init__(message)
        self.component, self.reason = component, reason
        self.temporary = type(self).temporary if temporary is None else temporary


class Unavailable(StepError):
    """The broker or the stage memory did not answer, or refused. It is temporary."""

    temporary = True

    def __init__(self, message: str) -> None:
        super().__init__(message, component="keb", reason="err_keb_internal")


class StageLost(StepError):
    """The stage memory is lost. A step need not handle it: the stage is repeated."""


@dataclass(frozen=True)
class Outcome:
    """What a step returns; None means that it is done."""

    outcome: str
    message: str = ""
    after: float = 0
    error: Exception | None = None
    event_key: str = ""


def _error(error: Exception | str) -> Exception:
    return StepError(error) if isinstance(error, str) else error


def retry(after: float, error: Exception | str) -> Outcome:
    """Runs the stage (or with scope: step the step) again after seconds, because of an error; 0 means retry.every."""
    return Outcome("retry", after=after, error=_error(error))


def wait(after: float, message: str) -> Outcome:
    """Looks again after seconds, without an error; 0 means wait.every or retry.every."""
    return Outcome("retry", message, after)


def wait_for_event(key: str, fallback: float, message: str) -> Outcome:
    """Waits until the event with the key comes, and at most so many seconds. The key should contain op.id."""
    return Outcome("retry", message, fallback, event_key=key)


def skip(message: str) -> Outcome:
    """Ends the step without work."""
    return Outcome("skipped", message)


def not_completed(error: Exception | str) -> Outcome:
    """Gives up with work left to do. The operation continues and records the step."""
    return Outcome("not completed", error=_error(error))


def retry_without_fail(op: Operation, after: float, budget: float, error: Exception | str) -> Outcome:
    """Retries until the budget has passed since op.first_tried_at; after that the step is not completed."""
    return retry(after, error) if datetime.now(UTC) - op.first_tried_at < timedelta(seconds=budget) else not_completed(error)


@dataclass(frozen=True)
class Override:
    """A setting of a component, with a key such as global.domainName. The consumer keeps a secret one in a Secret."""

    key: str
    value: str
    secret: bool = False


class Memory(Protocol):
    """The stage memory of one attempt of one stage."""

    async def put(self, name: str, value: bytes) -> None: ...

    async def read(self, name: str) -> bytes | None: ...

    async def list(self, prefix: str) -> dict[str, bytes]: ...

    async def is_lost(self) -> bool: ...


#: Sends a request to the broker or the orchestrator: kind (credentials, keep, kept or extend) and members, to the members of the answer.
Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Operation:
    """The order, the position of the operation, and access to its details, stage memory and credentials."""

    def __init__(self, command: wire.Command, worker: str, memory: Memory | None, ask: Ask, log: logging.LoggerAdapter[Any],
                 report: Callable[[dict[str, Any]], None] = lambda notice: None) -> None:
        o: dict[str, Any] = command.operation
        self.id: str = o["id"]
        self.type: str = o["type"]
        self.instance_id: str = o["instanceId"]
        #: Objects with the names of docs/events.md, for example op.runtime["shootName"].
        self.plan: dict[str, str] = o.get("plan") or {}
        self.context: dict[str, str] = o.get("context") or {}
        self.runtime: dict[str, str] = o.get("runtime") or {}
        self.parameters: dict[str, Any] = o.get("parameters") or {}
        self.update: dict[str, Any] | None = o.get("update")
        self.upgrade: dict[str, Any] | None = o.get("upgrade")
        self.credentials: list[str] = o.get("credentials") or []
        self.temporary: bool = o.get("temporary") is True
        self.purpose: str = o.get("purpose") or ""
        self.user_agent: str = o.get("userAgent") or ""
        self.stage, self.step = command.stage, command.step
        self.stage_attempt, self.step_attempt = command.stage_attempt, command.step_attempt
        self.first_tried_at, self.execute_before = command.first_tried_at, command.execute_before
        #: The event that the step has waited for: key, source, id, receivedAt and data; None if none has come.
        self.event: dict[str, Any] | None = command.event
        self.log, self.worker = log, worker
        self._command, self._memory, self._ask_service, self._report = command, memory, ask, report
        # What the step has said so far, and what it has learned.
        self.patch: dict[str, Any] = {}
        self.secrets = Secrets()
        self.invalid = ""
        self.lost = self.closed = False
        self.unreadable: Exception | None = None
        self._values: dict[str, bytes] = {}
        self._components: dict[str, list[Override]] = {}

    def details(self, worker: str = "") -> dict[str, Any]:
        """Returns what a worker has saved in this or an earlier operation of the instance; by default this worker."""
        saved = self._command.details.get(worker or self.worker) or {}
        return saved if worker not in ("", self.worker) else merge_details(saved, self.patch)

    def save_details(self, members: Mapping[str, Any]) -> None:
        """Saves members of the worker's own details; None removes one. They are stored in the clear, so they must hold no secret."""
        try:
            if self.closed:
                raise ValueError("the step has already returned")
            self.patch = wire.decode_json(_storable({**self.patch, **members}))
        except (TypeError, ValueError) as e:
            raise self._reject(f"save details: {e}") from None

    def _reject(self, problem: str) -> StepError:
        """Returns an error that fails the step, even if the step catches it."""
        self.invalid = self.invalid or problem
        return StepError(problem)

    def remember(self, key: str, value: bytes) -> None:
        """Stores a value, which may be secret, for later steps of the stage, when this step is done or skipped."""
        if not key or len(value) > MAX_STORED:
            raise self._reject(f"remember {key!r}: want a key, and at most {MAX_STORED} bytes")
        self._need_memory(f"remember {key!r}")
        self._values[key] = bytes(value)

    def set_overrides(self, component: str, entries: Sequence[Override]) -> None:
        """Stores settings of a component (empty: of all) for the stage. They replace those of an earlier run of this step."""
        if not all(e.key and isinstance(e.value, str) for e in entries):
            raise self._reject(f"overrides of component {component!r}: want entries with a key and a text")
        self._need_memory(f"overrides of component {component!r}")
        self._components[component] = list(entries)

    def _need_memory(self, what: str) -> Memory:
        if self._memory is None:
            raise self._reject(f"{what}: this worker has no stage memory: set KEB_STAGE_KEYS")
        return self._memory

    async def recall(self, key: str) -> bytes | None:
        """Returns what a step of this stage has remembered, or None."""
        if key in self._values:
            return self._values[key]
        value: bytes | None = await self._read(f"recall {key!r}", lambda memory: memory.read(f"value.{key}"))
        self.secrets.learn((value or b"").decode(errors="replace"))
        return value

    async def overrides(self) -> dict[str, list[Override]]:
        """Returns the overrides of this stage by component, each ordered by key. A later step wins."""
        stored = await self._read("overrides", lambda memory: memory.list("override."))
        own = {f"override.{self.step}.{component}" for component in self._components}
        others = [wire.decode_json(value) for name, value in stored.items() if name not in own]
        sets = [(s["component"], [Override(e["key"], e["value"], e.get("secret", False)) for e in s["entries"]])
                for s in sorted(others, key=lambda s: int(s["cursor"]))]
        self.secrets.learn([e.value for _, entries in sets for e in entries if e.secret])
        found: dict[str, dict[str, Override]] = {}
        for component, entries in sets + list(self._components.items()):
            found.setdefault(component, {}).update({e.key: e for e in entries})
        return {component: [e for _, e in sorted(found[component].items())] for component in sorted(found)}

    async def _read(self, what: str, read: Callable[[Memory], Awaitable[Any]]) -> Any:
        memory = self._need_memory(what)
        try:
            if not (found := await read(memory)):
                await self._check_lost()
            return found
        except StageLost:
            raise
        except Exception as e:
            self.unreadable = Unavailable(f"{what}: {e}")
            raise self.unreadable from e

    async def _check_lost(self) -> None:
        if self._command.stage_memory and self._memory is not None and await self._memory.is_lost():
            self.lost = True
            raise StageLost("the stage memory is lost")

    async def flush(self) -> bool:
        """Writes what the step remembers, and reports whether it wrote anything. The worker calls it after the step."""
        if not self._values and not self._components:
            return False
        await self._check_lost()  # or this write would make a lost memory look complete
        memory = self._need_memory("flush")
        for key, value in self._values.items():
            await memory.put(f"value.{key}", value)
        for component, entries in self._components.items():
            content = [{k: v for k, v in asdict(e).items() if v is not False} for e in entries]
            value = wire.encode_json({"component": component, "cursor": self._command.cursor, "entries": content})
            await memory.put(f"override.{self.step}.{component}", value)
        return True

    async def _ask(self, kind: str, what: str, **members: Any) -> Any:
        try:
            return await self._ask_service(kind, {"instanceId": self.instance_id, "operationId": self.id, **members})
        except Exception as e:
            raise (StepError if str(e) == KEPT_BROKEN else Unavailable)(f"{what}: {e}") from None

    async def _claim(self, name: str) -> Any:
        claimed = (await self._ask("credentials", f"claim credentials {name!r}", name=name)).get("credentials")
        if claimed is None:
            raise Unavailable(f"claim credentials {name!r}: the broker's answer holds no credentials")
        return claimed

    async def claim_credentials(self, name: str) -> Any:
        """Asks the broker for credentials that op.credentials lists. Neither log nor save them."""
        if name not in self.credentials:
            raise StepError(f"claim credentials {name!r}: the operation has {self.credentials}")
        claimed = await self._claim(name)
        self.secrets.learn(claimed)
        return claimed

    async def neighbours(self) -> int:
        """Returns the number of other instances in the subaccount."""
        return int((await self._claim("neighbours"))["count"])

    async def keep(self, value: Any) -> None:
        """Lets the broker keep a sealed value of the instance for this worker, at once and whatever the outcome."""
        if len(wire.encode_json(value)) > MAX_VALUE:
            raise StepError(f"keep a value: at most {MAX_VALUE} bytes of JSON are allowed")
        await self._ask("keep", "keep a value", value=value)

    async def kept(self) -> Any:
        """Returns the value that this worker has kept of the instance, or None."""
        return (await self._ask("kept", "read what is kept")).get("value")

    async def extend(self, seconds: float) -> datetime:
        """Asks the orchestrator for so much time from now on, and returns the granted limit. After an error the old limit stays."""
        try:
            answer = await self._ask_service("extend", {"operationId": self.id, "cursor": self._command.cursor, "seconds": seconds})
        except Exception as e:
            raise Unavailable(f"ask for more time: {e}") from None
        self.execute_before = max(self.execute_before, datetime.fromisoformat(answer["executeBefore"]))
        return self.execute_before

    def progress(self, message: str, percent: int | None = None) -> None:
        """Shows operators how far the step is, for example "3 of 7 nodes". The last report of each second is sent, and may be lost."""
        notice = {"operationId": self.id, "cursor": self._command.cursor,
                  "message": wire.clean_text(self.secrets.redact(message), MAX_PROGRESS)}
        self._report(notice if percent is None else notice | {"percent": min(max(percent, 0), 100)})


def merge_details(saved: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Applies a patch to the details of a worker, as the orchestrator does."""
    return {name: value for name, value in {**saved, **patch}.items() if name not in patch or value is not None}


def _storable(members: dict[str, Any]) -> bytes:
    """Encodes details, and rejects what the database cannot store. It stores numbers without exponents."""
    raw = wire.encode_json(members)
    exponents = re.findall(rb'"[^"\\]*(?:\\.[^"\\]*)*"|e([+-]?\d+)', raw)
    if re.search(rb"(?<!\\)(\\\\)*\\u0000", raw):
        raise ValueError("a text holds a NUL character, which cannot be stored")
    if len(raw) > MAX_VALUE or len(raw) + sum(abs(int(e or 0)) for e in exponents) > MAX_STORED:
        raise ValueError(f"{len(raw)} bytes, at most {MAX_VALUE} are allowed, and {MAX_STORED} as the database writes them")
    return raw
