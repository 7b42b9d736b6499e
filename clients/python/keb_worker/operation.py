"""What a step receives, and what it returns or raises."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from . import wire
from .mask import REDACTED, mask_text

INTERNAL, TIMEOUT, CANCELLED = "err_keb_internal", "err_keb_timeout", "err_keb_cancelled"
FAILED, PANICKED, INVALID = "err_step_failed", "err_step_panicked", "err_step_result"
MAX_VALUE = 256 << 10  # of saved details and kept values, in bytes of JSON
MAX_STORED = MAX_REMEMBERED = 512 << 10
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


def retry(after: float, error: Exception | str) -> Outcome:
    """Runs the stage (or with scope: step the step) again after seconds, because of an error; 0 means retry.every."""
    return Outcome("retry", after=after, error=StepError(error) if isinstance(error, str) else error)


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
    return Outcome("not completed", error=StepError(error) if isinstance(error, str) else error)


def retry_without_fail(op: Operation, after: float, budget: float, error: Exception | str) -> Outcome:
    """Retries until the budget has passed since op.first_tried_at; after that the step is not completed."""
    return retry(after, error) if op.now() - op.first_tried_at < timedelta(seconds=budget) else not_completed(error)


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


#: Sends a request to the broker: kind (credentials, keep or kept) and members, to the members of the answer.
Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Operation:
    """The order, the position of the operation, and access to its details, stage memory and credentials."""

    def __init__(self, command: wire.Command, worker: str, memory: Memory | None, ask: Ask, log: logging.LoggerAdapter[Any],
                 now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
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
        self.log, self.now = log, now
        self._command, self.worker, self._memory, self._ask_broker = command, worker, memory, ask
        self.patch: dict[str, Any] = {}
        self.invalid = ""
        self.lost = self.closed = False
        self.unreadable: Exception | None = None
        self._values: dict[str, bytes] = {}
        self._components: dict[str, list[Override]] = {}
        self._secrets: list[str] = []

    def details(self, worker: str = "") -> dict[str, Any]:
        """Returns what a worker has saved in this or an earlier operation of the instance; by default this worker."""
        worker = worker or self.worker
        saved = self._command.details.get(worker) or {}
        return merge_details(saved, self.patch) if worker == self.worker else saved

    def save_details(self, members: Mapping[str, Any]) -> None:
        """Saves members of the worker's own details; None removes one. They are stored in the clear, so they must hold no secret."""
        try:
            if self.closed:
                raise ValueError("the step has already returned")
            patch = {**self.patch, **wire.decode_json(raw := wire.encode_json(dict(members)))}
            if re.search(rb"(?<!\\)(\\\\)*\\u0000", raw):
                raise ValueError("a text holds a NUL character, which cannot be stored")
            if (size := len(wire.encode_json(patch))) > MAX_VALUE or wire.stored_size(patch) > MAX_STORED:
                raise ValueError(f"{size} bytes, at most {MAX_VALUE} are allowed, and {MAX_STORED} as the database writes them")
        except (TypeError, ValueError) as e:
            raise self._spoil(f"save details: {e}") from None
        self.patch = patch

    def _spoil(self, problem: str) -> StepError:
        self.invalid = self.invalid or problem
        return StepError(problem)

    def remember(self, key: str, value: bytes) -> None:
        """Stores a value, which may be secret, for later steps of the stage, when this step is done or skipped."""
        if not key or len(value) > MAX_REMEMBERED:
            raise self._spoil(f"remember {key!r}: want a key, and at most {MAX_REMEMBERED} bytes")
        self._need_memory(f"remember {key!r}")
        self._values[key] = bytes(value)

    def set_overrides(self, component: str, entries: Sequence[Override]) -> None:
        """Stores settings of a component (empty: of all) for the stage. They replace those of an earlier run of this step."""
        if not all(e.key and isinstance(e.value, str) for e in entries):
            raise self._spoil(f"overrides of component {component!r}: want entries with a key and a text")
        self._need_memory(f"overrides of component {component!r}")
        self._components[component] = list(entries)

    def _need_memory(self, what: str) -> Memory:
        if self._memory is None:
            raise self._spoil(f"{what}: this worker has no stage memory: set KEB_STAGE_KEYS")
        return self._memory

    async def recall(self, key: str) -> bytes | None:
        """Returns what a step of this stage has remembered, or None."""
        if key in self._values:
            return self._values[key]
        value: bytes | None = await self._read(f"recall {key!r}", lambda memory: memory.read(f"value.{key}"))
        self.learn(_decoded(value or b""))
        return value

    async def overrides(self) -> dict[str, list[Override]]:
        """Returns the overrides of this stage by component, each ordered by key. A later step wins."""
        stored = await self._read("overrides", lambda memory: memory.list("override."))
        own = {f"override.{self.step}.{component}" for component in self._components}
        sets: list[dict[str, Any]] = [wire.decode_json(value) for name, value in stored.items() if name not in own]
        found: dict[str, dict[str, Override]] = {}
        for s in sorted(sets, key=lambda s: int(s["cursor"])):
            entries = [Override(e["key"], e["value"], e.get("secret", False)) for e in s["entries"]]
            self.learn([e.value for e in entries if e.secret])
            found.setdefault(s["component"], {}).update({e.key: e for e in entries})
        for component, entries in self._components.items():
            found.setdefault(component, {}).update({e.key: e for e in entries})
        return {component: [e for _, e in sorted(found[component].items())] for component in sorted(found)}

    async def _read(self, what: str, read: Callable[[Memory], Awaitable[Any]]) -> Any:
        memory = self._need_memory(what)
        try:
            if not (found := await read(memory)):
                await self.check_lost()
            return found
        except StageLost:
            raise
        except Exception as e:
            self.unreadable = Unavailable(f"{what}: {e}")
            raise self.unreadable from e

    async def check_lost(self) -> None:
        """Raises StageLost if earlier steps used the memory and it is empty."""
        if self._command.stage_memory and self._memory is not None and await self._memory.is_lost():
            self.lost = True
            raise StageLost("the stage memory is lost")

    async def flush(self) -> bool:
        """Writes what the step remembers, and reports whether it wrote anything. The worker calls it after the step."""
        if not self._values and not self._components:
            return False
        await self.check_lost()  # or this write would make a lost memory look complete
        memory = self._need_memory("flush")
        for key, value in self._values.items():
            await memory.put(f"value.{key}", value)
        for component, entries in self._components.items():
            content = [{k: v for k, v in asdict(e).items() if v is not False} for e in entries]
            value = wire.encode_json({"component": component, "cursor": self._command.cursor, "entries": content})
            await memory.put(f"override.{self.step}.{component}", value)
        return True

    async def _ask(self, kind: str, what: str, **members: Any) -> dict[str, Any]:
        try:
            return await self._ask_broker(kind, {"instanceId": self.instance_id, "operationId": self.id, **members})
        except Exception as e:
            raise (StepError if str(e) == KEPT_BROKEN else Unavailable)(f"{what}: {e}") from None

    async def claim_credentials(self, name: str) -> Any:
        """Asks the broker for credentials that op.credentials lists. Neither log nor save them."""
        if name not in self.credentials:
            raise StepError(f"claim credentials {name!r}: the operation has {self.credentials}")
        answer = await self._ask("credentials", f"claim credentials {name!r}", name=name)
        if answer.get("credentials") is None:
            raise Unavailable(f"claim credentials {name!r}: the broker's answer holds no credentials")
        self.learn(answer["credentials"])
        return answer["credentials"]

    async def neighbours(self) -> int:
        """Returns the number of other instances in the subaccount."""
        answer = await self._ask("credentials", "claim neighbours", name="neighbours")
        return int(answer["credentials"]["count"])

    async def keep(self, value: Any) -> None:
        """Lets the broker keep a sealed value of the instance for this worker, at once and whatever the outcome."""
        if len(wire.encode_json(value)) > MAX_VALUE:
            raise StepError(f"keep a value: at most {MAX_VALUE} bytes of JSON are allowed")
        await self._ask("keep", "keep a value", value=value)

    async def kept(self) -> Any:
        """Returns the value that this worker has kept of the instance, or None."""
        return (await self._ask("kept", "read what is kept")).get("value")

    def learn(self, value: Any) -> None:
        """Records the secrets in a value, so that they are removed from the result."""
        for text in _texts(value):
            words = re.split(r"[ \t\r\n\"',]+", text.strip(" \t\r\n\"',"))
            for secret in [text.strip()] + [w for w in words if len(w.encode()) >= 24] * (len(words) > 1):
                is_address = "://" in secret and "@" not in secret  # errors need addresses
                if len(secret.encode()) >= 8 and not is_address and not secret.endswith(":") and secret not in self._secrets:
                    self._secrets.append(secret)
        self._secrets.sort(key=len, reverse=True)  # a secret may contain another one

    def redact(self, text: str) -> str:
        """Removes secrets from a text, also the beginning of one where the text was cut."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
            if text.endswith("..."):
                cut = next((n for n in range(len(secret), 7, -1) if text[:-3].endswith(secret[:n])), 0)
                text = text[:-3 - cut] + REDACTED if cut else text
        return mask_text(text)

    def leaking_member(self) -> str:
        """Returns a member of the details that holds a received secret, or an empty text."""
        return next((name for name, value in self.patch.items() for text in _texts(value) if any(s in text for s in self._secrets)), "")


def merge_details(saved: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Applies a patch to the details of a worker, as the orchestrator does."""
    return {name: value for name, value in {**saved, **patch}.items() if name not in patch or value is not None}


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]


def _decoded(value: bytes) -> Any:
    text = value.decode(errors="replace")
    try:
        return wire.decode_json(text)
    except ValueError:
        return text
