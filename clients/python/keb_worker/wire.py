"""The encodings of the bus: names, headers, commands and results (docs/wire-contract.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_to_bytes

from .mask import mask_text

STREAM = "KEB_COMMANDS"
TYPE = "io.kyma-project.keb."
MAX_HEADERS = 65_535  # bytes of a message
MAX_TEXT = 4096  # bytes of a message, and of each member of an error
MAX_REASON = 1000  # bytes of the reason of a dead letter

_KINDS = {"succeeded": "step.succeeded", "retry": "step.retry", "failed": "step.failed", "skipped": "step.skipped",
          "not completed": "step.skipped", "stage lost": "stage.lost"}
OUTCOMES = tuple(_KINDS)
_OPERATIONS = ("provision", "deprovision", "update", "upgradeKyma", "upgradeCluster")

NOT_SENT = ("outcome", "retryAfter", "interrupted", "panicked")  # members of the result of an execution
Command = dict[str, Any]  # a command with the members of the contract, and its traceparent
Test = Callable[[Any], Any]


def _matches(pattern: str, flags: int = 0) -> Test:
    return lambda v: isinstance(v, str) and re.fullmatch(pattern, v, flags)


def _optional(test: Test) -> Test:
    return lambda v: v is None or test(v)


def _is_object(v: Any) -> bool:
    return isinstance(v, dict)


is_worker = _matches(r"[a-z0-9][a-z0-9-]{0,31}")
is_step = _matches(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
is_event_key = _matches(r"(?=.{1,200}$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_is_text = _matches(r"(?s).+")
_has_time_form = _matches(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def _is_time(v: Any) -> bool:
    try:
        return bool(_has_time_form(v) and datetime.fromisoformat(v))
    except ValueError:  # such as the 30th of February
        return False


# The rules of attributes and members: their names, a test, and what is wanted.
_ATTRIBUTES: list[tuple[str, Test, str]] = [
    ("specversion", lambda v: v == "1.0", "1.0"),
    ("id source", _is_text, "a text"),
    ("type", lambda v: v == TYPE + "step.execute.v1", TYPE + "step.execute.v1"),
    ("time", _optional(_is_time), "a time as in RFC 3339"),
    ("datacontenttype", _optional(_matches(r"((application|text)/([^;]+\+)?json *(;.*)?)?", re.I)), "application/json"),
]
_MEMBERS: list[tuple[str, Test, str]] = [
    ("operation", _is_object, "a JSON object"),
    ("operation.id stage step", _matches(r"[A-Za-z0-9_-]{1,200}"), "1 to 200 letters, digits, hyphens and underscores"),
    ("operation.type", lambda v: v in _OPERATIONS, f"one of {', '.join(_OPERATIONS)}"),
    ("operation.instanceId", _is_text, "a text"),
    ("operation.plan operation.context operation.runtime operation.parameters details", _optional(_is_object), "a JSON object"),
    ("cursor dispatch stageAttempt stepAttempt", lambda v: type(v) is int and v > 0, "a number of 1 or more"),
    ("executeBefore", _is_time, "a time as in RFC 3339"),
    ("firstTriedAt", _optional(_is_time), "a time as in RFC 3339"),
    ("event", _optional(lambda v: _is_object(v) and is_event_key(v.get("key"))), "a key of letters, digits, - and _, with dots"),
]


def _check(value: Any, rules: list[tuple[str, Test, str]]) -> None:
    for paths, test, wanted in rules:
        for path in paths.split():
            member = value
            for name in path.split("."):
                member = member.get(name) if isinstance(member, dict) else None
            if not test(member):
                raise ValueError(f"{path}: want {wanted}")


def result_subject(worker: str, step: str) -> str:
    return f"keb.result.{worker}.{step}"


def worker_subject(worker: str, what: str) -> str:
    """Returns the subject of the pings, the cancel notices or the progress of a worker."""
    return f"keb.worker.{worker}.{what}"


def ask_subject(worker: str, kind: str) -> str:
    """Returns the subject of the requests of a worker: current, extend, credentials, keep or kept."""
    return f"keb.ask.{'orchestrator' if kind in ('current', 'extend') else 'broker'}.{kind}.{worker}"


def service_version(version: str) -> str:
    """Returns the version of the micro service, which must be a semantic one."""
    return v if re.fullmatch(r"((0|[1-9]\d*)\.){2}(0|[1-9]\d*)", v := version.removeprefix("v")) else "0.0.0"


def escape(text: str) -> str:
    """Percent-encodes a header value."""
    return re.sub(rb"[^\x21\x23\x24\x26-\x7e]", lambda m: b"%%%02X" % m[0][0], text.encode()).decode()


def unescape(value: str) -> str:
    """Decodes a header value once. It raises ValueError if an escape is not readable."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", value):
        raise ValueError("a % is not followed by two hexadecimal digits")
    return unquote_to_bytes(value).decode()


def encode_json(value: Any) -> bytes:
    """Encodes a value, and rejects what JSON does not have, such as NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def decode_json(data: bytes | str) -> Any:
    def reject(text: str) -> Any:
        raise ValueError(f"{text} is not JSON")

    return json.loads(data if isinstance(data, str) else data.decode(), parse_constant=reject)


def format_time(t: datetime) -> str:
    t = t.astimezone(UTC)
    return f"{t:%Y-%m-%dT%H:%M:%S}.{t.microsecond:06}".rstrip("0").rstrip(".") + "Z"


def clean_text(text: str, longest: int = MAX_TEXT) -> str:
    """Returns a text that can be stored: UTF-8 without NUL, cut to a number of bytes."""
    raw = text.replace("\0", "\ufffd").encode(errors="replace")
    return raw.decode() if len(raw) <= longest else raw[: longest - 3].decode(errors="ignore") + "..."


def command_id(c: Command) -> str:
    """Returns the id that all dispatches of a command share."""
    return f"{c['operation']['id']}/{c['cursor']}"


def dispatch_id(c: Command) -> str:
    return f"{command_id(c)}/{c['dispatch']}"


def read_command(headers: Mapping[str, str | list[str]] | None, data: bytes) -> Command:
    """Reads a command. It raises ValueError with the header or the member that violates the contract."""
    attributes: dict[str, Any] = {}
    media = ""
    for name, values in (headers or {}).items():
        name, values = name.lower(), [values] if isinstance(values, str) else values
        if name == "content-type":
            media = values[0].partition(";")[0].strip().lower()
        if name.startswith("ce-"):
            if len(values) > 1 or name[3:] in attributes:
                raise ValueError(f"header {name} is duplicated")
            attributes[name[3:]] = unescape(values[0])
    if is_structured := media.startswith("application/cloudevents"):
        if media not in ("application/cloudevents", "application/cloudevents+json"):
            raise ValueError(f"content type {media!r}: want application/cloudevents+json")
        attributes = decode_json(data)
    _check(attributes, _ATTRIBUTES)
    command = attributes.get("data") if is_structured else decode_json(data)
    _check(command, _MEMBERS)
    return Command(command | {"traceparent": attributes.get("traceparent", "")})


def result_message(worker: str, version: str, c: Command, result: dict[str, Any], traceparent: str) -> tuple[str, dict[str, str], bytes]:
    """Returns the subject, the headers and the body of a result, which has an outcome and the members of the body."""
    outcome = result["outcome"]
    body = {"operationId": c["operation"]["id"], "cursor": c["cursor"], "stage": c["stage"], "step": c["step"],
            "worker": {"name": worker, "version": version} if version else {"name": worker}}
    body |= {name: value for name, value in result.items() if value and name not in NOT_SENT}
    body |= {"notCompleted": True} if outcome == "not completed" else {"retryAfter": result["retryAfter"]} if outcome == "retry" else {}
    headers = {
        "ce-specversion": "1.0", "ce-id": escape(dispatch_id(c)), "ce-type": f"{TYPE}{_KINDS[outcome]}.v1",
        "ce-source": f"/keb/worker/{worker}", "ce-subject": escape(c["operation"]["id"]), "ce-time": result["finishedAt"],
        "ce-datacontenttype": "application/json", "ce-traceparent": traceparent, "Nats-Msg-Id": dispatch_id(c)}
    return result_subject(worker, c["step"]), {name: value for name, value in headers.items() if value}, encode_json(body)


def dead_letter(worker: str, reason: str, subject: str, sequence: str, nanoseconds: str, headers: Mapping[str, Any] | None, data: bytes,
                max_payload: int) -> tuple[dict[str, Any], bytes]:
    """Returns the headers and the body of the copy of an unreadable message, cut to the limit of the server."""
    copied = {k: v for k, v in (headers or {}).items() if not k.startswith("Nats-")}
    own = {"Keb-Dead-Reason": escape(mask_text(reason).encode(errors="replace")[:MAX_REASON].decode(errors="ignore")),
           "Keb-Dead-Subject": subject, "Keb-Dead-Consumer": worker, "Nats-Msg-Id": f"dead/{worker}/{sequence}/{nanoseconds}"}

    def size() -> int:
        pairs = [(k, v) for k, vs in (copied | own).items() for v in ([vs] if isinstance(vs, str) else vs)]
        return len("NATS/1.0\r\n\r\n") + sum(len(k.encode()) + len(v.encode()) + len(": \r\n") for k, v in pairs)

    if (full := size() + len(data)) > max_payload or size() > MAX_HEADERS:
        own["Keb-Dead-Size"] = str(full)
        copied = {} if size() > MAX_HEADERS else copied
        data = data[: max(max_payload - size(), 0)]
    return copied | own, data
