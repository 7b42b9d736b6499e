"""The metrics of a worker, with the names and labels of the Go SDK, and its spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from .wire import OUTCOMES, STREAM, Command, Result

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    trace = None

_REASONS = ("late", "duplicate", "unknown_step", "unreadable", "outdated", "unchecked", "overdue", "quarantined")
_BUCKETS = (.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The metrics of one worker. All series exist from the start, so that a rate includes the first event."""

    def __init__(self, worker: str, steps: Iterable[str], gauges: dict[str, tuple[str, Callable[[], float]]],
                 registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, **labels: str) -> Any:
            return Counter(name, text, list(labels), registry=registry).labels(**labels)

        names, consumer = list(steps), {"stream": STREAM, "consumer": worker}
        total = Counter("keb_worker_steps_total", "Executions of a step, by how they ended.", ["worker", "step", "outcome"], registry=registry)
        duration = Histogram("keb_worker_step_duration_seconds", "Time that one execution of a step took.", ["worker", "step"],
                             buckets=_BUCKETS, registry=registry)
        ignored = Counter("keb_worker_commands_ignored_total", "Commands that were not executed, by reason.", ["worker", "reason"],
                          registry=registry)
        self.total = {(step, outcome): total.labels(worker, step, outcome) for step in names for outcome in OUTCOMES}
        self.duration = {step: duration.labels(worker, step) for step in names}
        self.ignored = {reason: ignored.labels(worker, reason) for reason in _REASONS}
        for name, (text, value) in gauges.items():
            Gauge(name, text, ["worker"], registry=registry).labels(worker).set_function(value)
        self.connected = Gauge("keb_bus_connected", "1 while the process is connected to NATS.", registry=registry)
        self.panics = counter("keb_worker_panics_total", "Executions of a step that ended in an exception.", worker=worker)
        self.unpublished = counter("keb_worker_results_unpublished_total", "Results that could not be published.", worker=worker)
        self.published = counter("keb_bus_published_total", "Messages that a stream has taken.", stream="KEB_RESULTS")
        self.failures = counter("keb_bus_publish_failures_total", "Messages that could not be published.", stream="KEB_RESULTS")
        self.consumed = counter("keb_bus_consumed_total", "Received messages.", **consumer)
        self.redelivered = counter("keb_bus_redelivered_total", "Received messages that were delivered before.", **consumer)
        self.dead = counter("keb_bus_dead_letters_total", "Messages moved to the dead letters.", stream=STREAM)

    def executed(self, step: str, r: Result) -> None:
        self.total[step, r.outcome].inc()
        self.duration[step].observe((r.finished_at - r.started_at).total_seconds())
        self.panics.inc(int(r.panicked))


class Span:
    """A span. Without OpenTelemetry it only passes the trace on."""

    def __init__(self, span: Any, traceparent: str) -> None:
        self._span, self.traceparent = span, traceparent
        self.trace_id = f"{span.get_span_context().trace_id:032x}" if span is not None and span.is_recording() else ""

    def end(self, r: Result, outcome: str) -> None:
        """Adds a result to the span of its execution."""
        if self._span is None:
            return
        self._span.set_attributes({"keb.outcome": outcome} | ({"keb.retry_after": float(r.retry_after)} if r.retry_after else {}))
        if r.error:
            self._span.set_attributes({"error.type": r.error["reason"], "keb.component": r.error["component"]})
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, r.error["message"]))


@contextmanager
def span_of(name: str, kind: str, attributes: dict[str, Any], parent: str = "") -> Iterator[Span]:
    """Begins a span below the trace context parent, or below the current span."""
    if trace is None:
        yield Span(None, parent)
        return
    carrier: dict[str, str] = {}
    propagator = TraceContextTextMapPropagator()
    context = propagator.extract({"traceparent": parent}) if parent else None
    options = {"kind": trace.SpanKind[kind], "attributes": {"messaging.system": "nats", **attributes}}
    with trace.get_tracer("keb_worker").start_as_current_span(name, context, **options) as span:
        propagator.inject(carrier)
        yield Span(span, carrier.get("traceparent", parent))


def execution_span(worker: str, subject: str, c: Command, deliveries: int) -> Any:
    """Begins the span of an execution as a child of the step's span in the command."""
    o = c.operation
    return span_of(f"process {subject}", "CONSUMER", {
        "messaging.operation.type": "process", "messaging.operation.name": "process", "messaging.destination.name": subject,
        "messaging.consumer.group.name": worker, "messaging.message.id": c.dispatch_id, "keb.operation.id": o["id"],
        "keb.operation.type": o["type"], "keb.instance.id": o["instanceId"], "keb.plan": (o.get("plan") or {}).get("name", ""),
        "keb.stage": c.stage, "keb.step": c.step, "keb.stage.attempt": c.stage_attempt, "keb.step.attempt": c.step_attempt,
        "keb.dispatch": c.dispatch, "keb.deliveries": deliveries, "keb.worker": worker}, c.traceparent)
