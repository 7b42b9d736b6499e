"""The encodings of the bus: names, headers, commands and results (docs/wire-contract.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_to_bytes

from .mask import mask_text

STREAM = "KEB_COMMANDS"
TYPE = "io.kyma-project.keb."
OPERATION_TYPES = ("provision", "deprovision", "update", "upgradeKyma", "upgradeCluster")
MAX_HEADERS = 65_535  # bytes of a message
MAX_TEXT = 4096  # bytes of a message, and of each member of an error

_WORD = re.compile(r"[A-Za-z0-9_-]{1,200}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_KINDS = {"succeeded": "step.succeeded", "retry": "step.retry", "failed": "step.failed", "skipped": "step.skipped",
          "not completed": "step.skipped", "stage lost": "stage.lost"}
OUTCOMES = tuple(_KINDS)

is_worker = re.compile(r"[a-z0-9][a-z0-9-]{0,31}").fullmatch
is_step = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}").fullmatch


def is_event_key(key: str) -> bool:
    """Reports whether a step can wait for an event with the key."""
    return len(key) <= 200 and re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", key) is not None


def result_subject(worker: str, step: str) -> str:
    return f"keb.result.{worker}.{step}"


def worker_subject(worker: str, what: str) -> str:
    """Returns the subject of the pings or the cancel notices of a worker."""
    return f"keb.worker.{worker}.{what}"


def ask_subject(worker: str, kind: str) -> str:
    """Returns the subject of the requests of a worker: current, credentials, keep or kept."""
    return f"keb.ask.{'orchestrator' if kind == 'current' else 'broker'}.{kind}.{worker}"


def service_version(version: str) -> str:
    """Returns the version of the micro service, which must be a semantic one."""
    return v if re.fullmatch(r"((0|[1-9]\d*)\.){2}(0|[1-9]\d*)", v := version.removeprefix("v")) else "0.0.0"


def escape(text: str) -> str:
    """Percent-encodes a header value."""
    return re.sub(rb"[^\x21\x23\x24\x26-\x7e]", lambda m: b"%%%02X" % m[0][0], text.encode()).decode()


def unescape(value: str) -> str:
    """Decodes a header value once. It raises ValueError if an escape is not readable."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", value):
        raise ValueError("has a % that is not followed by two hexadecimal digits")
    return unquote_to_bytes(value).decode()


def encode_json(value: Any) -> bytes:
    """Encodes a value, and rejects what JSON does not have, such as NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def decode_json(data: bytes | str) -> Any:
    return json.loads(data if isinstance(data, str) else data.decode(), parse_constant=_no_number)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def format_time(t: datetime) -> str:
    t = t.astimezone(UTC)
    return f"{t:%Y-%m-%dT%H:%M:%S}.{t.microsecond:06}".rstrip("0").rstrip(".") + "Z"


def parse_time(text: Any, what: str) -> datetime:
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise ValueError(f"{what}: want a time as in RFC 3339")
    return datetime.fromisoformat(text)


def clean_text(text: str) -> str:
    """Returns a text that can be stored: at most 4096 bytes of UTF-8, without NUL."""
    raw = text.replace("\0", "\ufffd").encode(errors="replace")
    return raw.decode() if len(raw) <= MAX_TEXT else raw[: MAX_TEXT - 3].decode(errors="ignore") + "..."


def stored_size(value: Any) -> int:
    """Returns the most bytes of a value after Postgres has written it: with spaces after , and :, and without exponents."""
    text = json.dumps(value, ensure_ascii=False)
    return len(text.encode(errors="replace")) + sum(abs(int(e)) for e in re.findall(r"\de([+-]?\d{1,6})", text))


@dataclass(frozen=True)
class Command:
    """A command to execute a step."""

    operation: dict[str, Any]
    stage: str
    step: str
    cursor: int
    execute_before: datetime
    dispatch: int = 1
    stage_attempt: int = 1
    step_attempt: int = 1
    first_tried_at: datetime = datetime.min.replace(tzinfo=UTC)
    details: dict[str, Any] = field(default_factory=dict)
    stage_memory: bool = False
    event: dict[str, Any] | None = None
    traceparent: str = ""

    @property
    def id(self) -> str:
        """The id that all dispatches of the command share."""
        return f"{self.operation['id']}/{self.cursor}"

    @property
    def dispatch_id(self) -> str:
        return f"{self.id}/{self.dispatch}"


def read_command(headers: Mapping[str, str | list[str]] | None, data: bytes) -> Command:
    """Reads a command. It raises ValueError with the header or the member that violates the contract."""
    plain = _attributes(headers or {})
    if (media := plain.pop("", "").partition(";")[0].strip().lower()).startswith("application/cloudevents"):
        if media not in ("application/cloudevents", "application/cloudevents+json"):
            raise ValueError(f"content type {media!r}: want application/cloudevents+json")
        event = decode_json(data)
        _want(isinstance(event, dict), "the structured event", "want an object")
        plain = {k: v for k, v in event.items() if k != "data" and isinstance(v, str)}
        body = event.get("data")
    else:
        body = None
    _want(plain.get("specversion") == "1.0", "specversion", "want 1.0")
    for name in ("id", "source", "type"):
        _want(plain.get(name), name, "is missing or empty")
    _want(plain["type"] == TYPE + "step.execute.v1", "type", f"want {TYPE}step.execute.v1")
    if "time" in plain:
        parse_time(plain["time"], "time")
    kind = plain.get("datacontenttype", "").partition(";")[0].strip().lower()
    _want(kind in ("", "application/json", "text/json") or kind.endswith("+json"), "datacontenttype", "want application/json")
    return _command(decode_json(data) if body is None else body, plain.get("traceparent", ""))


def _attributes(headers: Mapping[str, str | list[str]]) -> dict[str, str]:
    """Returns the attributes by name, and the content type under the empty name."""
    found: dict[str, str] = {}
    for name, values in headers.items():
        name, value = name.lower(), values if isinstance(values, str) else values[0]
        if name == "content-type":
            found[""] = value
        elif name.startswith("ce-"):
            _want(name not in {f"ce-{n}" for n in found} and (isinstance(values, str) or len(values) == 1), name, "want one value")
            try:
                found[name[3:]] = unescape(value)
            except ValueError as e:
                raise ValueError(f"header {name} {e}") from None
    return found


def _want(ok: Any, member: str, problem: str) -> None:
    if not ok:
        raise ValueError(f"{member}: {problem}")


def _command(body: Any, traceparent: str) -> Command:
    _want(isinstance(body, dict), "the body", "want a JSON object")
    operation = body.get("operation")
    _want(isinstance(operation, dict), "operation", "want an object")
    words = {"operation.id": operation.get("id"), "stage": body.get("stage"), "step": body.get("step")}
    if operation.get("upgrade") is not None:
        words["operation.upgrade.orchestrationId"] = operation["upgrade"].get("orchestrationId")
    for name, value in words.items():
        _want(isinstance(value, str) and _WORD.fullmatch(value), name, "want 1 to 200 letters, digits, hyphens and underscores")
    _want(operation.get("type") in OPERATION_TYPES, "operation.type", f"want one of {OPERATION_TYPES}")
    _want(isinstance(i := operation.get("instanceId"), str) and i, "operation.instanceId", "is empty")
    for name, part in [*((f"operation.{n}", operation.get(n)) for n in ("plan", "context", "runtime", "parameters")),
                       ("details", body.get("details")), ("event", body.get("event"))]:
        _want(part is None or isinstance(part, dict), name, "want a JSON object")
    for name in ("cursor", "dispatch", "stageAttempt", "stepAttempt"):
        _want(type(body.get(name)) is int and body[name] > 0, name, "want a number of 1 or more")
    event = body.get("event")
    _want(event is None or is_event_key(str(event.get("key"))), "event.key", "want letters, digits, hyphens and underscores, with dots between")
    return Command(
        operation=operation, stage=body["stage"], step=body["step"], cursor=body["cursor"], dispatch=body["dispatch"],
        stage_attempt=body["stageAttempt"], step_attempt=body["stepAttempt"], details=body.get("details") or {},
        execute_before=parse_time(body.get("executeBefore"), "executeBefore"), event=event, traceparent=traceparent,
        first_tried_at=parse_time(body.get("firstTriedAt") or "0001-01-01T00:00:00Z", "firstTriedAt"),
        stage_memory=body.get("stageMemory") is True,
    )


@dataclass
class Result:
    """The outcome of one execution of a step."""

    outcome: str = "succeeded"
    message: str = ""
    #: Seconds of a retry; 0 is the time in the process file.
    retry_after: float = 0
    #: The key of the event that the step waits for; empty for none.
    event_key: str = ""
    #: component, reason and message; None without an error.
    error: dict[str, str] | None = None
    #: The members of the worker's own details that change; None for none.
    details: dict[str, Any] | None = None
    stage_memory: bool = False
    started_at: datetime = datetime.min.replace(tzinfo=UTC)
    finished_at: datetime = datetime.min.replace(tzinfo=UTC)
    #: The worker stops, and nothing is to be published.
    interrupted: bool = False
    #: The step raised an exception that is no StepError.
    panicked: bool = False


def result_message(worker: str, version: str, command: Command, r: Result) -> tuple[str, dict[str, str], bytes]:
    """Returns the subject, the headers and the body of a result."""
    body: dict[str, Any] = {
        "operationId": command.operation["id"], "cursor": command.cursor, "stage": command.stage, "step": command.step,
        "worker": {"name": worker, "version": version} if version else {"name": worker},
        "startedAt": format_time(r.started_at), "finishedAt": format_time(r.finished_at),
    }
    optional = {"message": r.message, "details": r.details, "stageMemory": r.stage_memory, "error": r.error,
                "notCompleted": r.outcome == "not completed", "event": {"key": r.event_key} if r.event_key else None}
    body |= {name: value for name, value in optional.items() if value}
    if r.outcome == "retry":
        body["retryAfter"] = r.retry_after
    headers = {
        "ce-specversion": "1.0", "ce-id": escape(command.dispatch_id), "ce-type": f"{TYPE}{_KINDS[r.outcome]}.v1",
        "ce-source": f"/keb/worker/{worker}", "ce-subject": escape(command.operation["id"]), "ce-time": body["finishedAt"],
        "ce-datacontenttype": "application/json", "Nats-Msg-Id": command.dispatch_id,
    }
    if command.traceparent:
        headers["ce-traceparent"] = command.traceparent
    return result_subject(worker, command.step), headers, encode_json(body)


def dead_letter(worker: str, reason: str, subject: str, sequence: str, nanoseconds: str, headers: Mapping[str, Any] | None, data: bytes,
                max_payload: int) -> tuple[dict[str, Any], bytes]:
    """Returns the headers and the body of the copy of an unreadable message, cut to the limit of the server."""
    copied = {k: v for k, v in (headers or {}).items() if not k.startswith("Nats-")}
    own = {
        "Keb-Dead-Reason": escape(mask_text(reason).encode(errors="replace")[:1000].decode(errors="ignore")),
        "Keb-Dead-Subject": subject, "Keb-Dead-Consumer": worker, "Nats-Msg-Id": f"dead/{worker}/{sequence}/{nanoseconds}",
    }
    if (size := _header_size(copied | own) + len(data)) > max_payload or size - len(data) > MAX_HEADERS:
        own["Keb-Dead-Size"] = str(size)
        copied = {} if _header_size(copied | own) > MAX_HEADERS else copied
        data = data[: max(max_payload - _header_size(copied | own), 0)]
    return copied | own, data


def _header_size(headers: Mapping[str, Any]) -> int:
    pairs = [(k, v) for k, vs in headers.items() for v in ([vs] if isinstance(vs, str) else vs)]
    return len("NATS/1.0\r\n\r\n") + sum(len(k.encode()) + len(v.encode()) + len(": \r\n") for k, v in pairs)
