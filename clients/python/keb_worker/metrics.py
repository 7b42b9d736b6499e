"""The metrics of a worker, with the names and labels of the Go SDK, and its spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from .wire import OUTCOMES, STREAM, Command, dispatch_id

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    trace = None

_REASONS = ("late", "duplicate", "unknown_step", "unreadable", "outdated", "unchecked", "overdue", "quarantined")
_BUCKETS = (.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The metrics of one worker. All series exist from the start, so that a rate includes the first event."""

    def __init__(self, worker: str, steps: Iterable[str], registry: CollectorRegistry = REGISTRY) -> None:
        def make(kind: Any, name: str, text: str, *more: str, **labels: str) -> Any:
            """Returns a metric with labels; with the names of more, a function from their values to the series."""
            metric = kind(name, text, [*labels, *more], registry=registry, **({"buckets": _BUCKETS} if kind is Histogram else {}))
            return (lambda *values: metric.labels(*labels.values(), *values)) if more else metric.labels(**labels) if labels else metric

        total = make(Counter, "keb_worker_steps_total", "Executions of a step, by how they ended.", "step", "outcome", worker=worker)
        duration = make(Histogram, "keb_worker_step_duration_seconds", "Time of one execution.", "step", worker=worker)
        ignored = make(Counter, "keb_worker_commands_ignored_total", "Commands that were not executed.", "reason", worker=worker)
        self.total = {(step, outcome): total(step, outcome) for step in steps for outcome in OUTCOMES}
        self.duration = {step: duration(step) for step in steps}
        self.ignored = {reason: ignored(reason) for reason in _REASONS}
        self.running = make(Gauge, "keb_worker_steps_running", "Steps that run now.", worker=worker)
        self.abandoned = make(Gauge, "keb_worker_steps_abandoned", "Steps that have not returned after their time limit.", worker=worker)
        self.concurrency = make(Gauge, "keb_worker_concurrency", "The most steps that run at once.", worker=worker)
        self.connected = make(Gauge, "keb_bus_connected", "1 while the process is connected to NATS.")
        self.panics = make(Counter, "keb_worker_panics_total", "Executions of a step that ended in an exception.", worker=worker)
        self.unpublished = make(Counter, "keb_worker_results_unpublished_total", "Results that could not be published.", worker=worker)
        self.published = make(Counter, "keb_bus_published_total", "Messages that a stream has taken.", stream="KEB_RESULTS")
        self.failures = make(Counter, "keb_bus_publish_failures_total", "Messages that could not be published.", stream="KEB_RESULTS")
        consumer = {"stream": STREAM, "consumer": worker}
        self.consumed = make(Counter, "keb_bus_consumed_total", "Received messages.", **consumer)
        self.redelivered = make(Counter, "keb_bus_redelivered_total", "Received messages that were delivered before.", **consumer)
        self.dead = make(Counter, "keb_bus_dead_letters_total", "Messages moved to the dead letters.", stream=STREAM)


@contextmanager
def span_of(name: str, kind: str, attributes: dict[str, Any], parent: str = "") -> Iterator[tuple[Any, str]]:
    """Begins a span below the trace context parent, or below the current span. It yields the span, which is None without OpenTelemetry,
    and the trace context to pass on."""
    if trace is None:
        yield None, parent
        return
    carrier, propagator = {"traceparent": parent}, TraceContextTextMapPropagator()
    options = {"kind": trace.SpanKind[kind], "attributes": {"messaging.system": "nats", **attributes}}
    context = propagator.extract(carrier) if parent else None
    with trace.get_tracer("keb_worker").start_as_current_span(name, context, **options) as span:
        propagator.inject(carrier)
        yield span, carrier["traceparent"]


def execution_attributes(worker: str, subject: str, c: Command, deliveries: int) -> dict[str, Any]:
    """Returns the attributes of the span of an execution."""
    o = c["operation"]
    return {
        "messaging.operation.type": "process", "messaging.operation.name": "process", "messaging.destination.name": subject,
        "messaging.consumer.group.name": worker, "messaging.message.id": dispatch_id(c), "keb.operation.id": o["id"],
        "keb.operation.type": o["type"], "keb.instance.id": o["instanceId"], "keb.plan": (o.get("plan") or {}).get("name", ""),
        "keb.stage": c["stage"], "keb.step": c["step"], "keb.stage.attempt": c["stageAttempt"], "keb.step.attempt": c["stepAttempt"],
        "keb.dispatch": c["dispatch"], "keb.deliveries": deliveries, "keb.worker": worker}


def note(span: Any, result: dict[str, Any] | None) -> None:
    """Adds the result of an execution, or that there is none, to its span."""
    if span is None:
        return
    r = result or {"outcome": "abandoned"}
    span.set_attribute("keb.outcome", "interrupted" if r.get("interrupted") else r["outcome"])
    if r.get("retryAfter"):
        span.set_attribute("keb.retry_after", float(r["retryAfter"]))
    if error := r.get("error"):
        span.set_attributes({"error.type": error["reason"], "keb.component": error["component"]})
        span.set_status(trace.Status(trace.StatusCode.ERROR, error["message"]))
