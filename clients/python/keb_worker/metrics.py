"""The metrics of a worker, with the names and labels of the Go SDK, and the spans of its executions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

    def __init__(self, worker: str, steps: Iterable[str], concurrency: int, registry: CollectorRegistry = REGISTRY) -> None:
        def one(kind: Any, name: str, text: str, **labels: str) -> Any:
            metric = kind(name, text, list(labels), registry=registry)
            return metric.labels(**labels) if labels else metric

        def many(kind: Any, name: str, text: str, labels: list[str], values: Iterable[tuple[str, ...]], **more: Any) -> dict[Any, Any]:
            metric = kind(name, text, labels, registry=registry, **more)
            return {v[-1] if len(v) == 2 else v[1:]: metric.labels(*v) for v in values}

        names, consumer = list(steps), {"stream": STREAM, "consumer": worker}
        self.total = many(Counter, "keb_worker_steps_total", "Executions of a step, by how they ended.", ["worker", "step", "outcome"],
                          [(worker, s, o) for s in names for o in OUTCOMES])
        self.duration = many(Histogram, "keb_worker_step_duration_seconds", "Time that one execution of a step took.", ["worker", "step"],
                             [(worker, s) for s in names], buckets=_BUCKETS)
        self.ignored = many(Counter, "keb_worker_commands_ignored_total", "Commands that were not executed, by reason.",
                            ["worker", "reason"], [(worker, r) for r in _REASONS])
        self.running = one(Gauge, "keb_worker_steps_running", "Steps that run now.", worker=worker)
        self.abandoned = one(Gauge, "keb_worker_steps_abandoned", "Steps that have not returned although their time limit has passed, "
                             "and that no longer hold a slot.", worker=worker)
        one(Gauge, "keb_worker_concurrency", "The most steps that run at once.", worker=worker).set(concurrency)
        self.panics = one(Counter, "keb_worker_panics_total", "Executions of a step that ended in an exception.", worker=worker)
        self.unpublished = one(Counter, "keb_worker_results_unpublished_total",
                               "Results that could not be published; their commands come again.", worker=worker)
        self.connected = one(Gauge, "keb_bus_connected", "1 while the process is connected to NATS.")
        self.published = one(Counter, "keb_bus_published_total", "Messages that a stream has taken.", stream="KEB_RESULTS")
        self.failures = one(Counter, "keb_bus_publish_failures_total", "Messages that could not be published.", stream="KEB_RESULTS")
        self.consumed = one(Counter, "keb_bus_consumed_total", "Messages handed to handlers.", **consumer)
        self.redelivered = one(Counter, "keb_bus_redelivered_total",
                               "Messages handed to handlers that were delivered before.", **consumer)
        self.dead = one(Counter, "keb_bus_dead_letters_total", "Messages moved to dead letters.", stream=STREAM)

    def executed(self, step: str, r: Result) -> None:
        self.total[step, r.outcome].inc()
        self.duration[step].observe((r.finished_at - r.started_at).total_seconds())
        self.panics.inc(int(r.panicked))


class Span:
    """The span of an execution. Without OpenTelemetry its trace context is that of the command."""

    def __init__(self, span: Any, traceparent: str) -> None:
        self._span, self.traceparent = span, traceparent

    def end(self, r: Result, outcome: str) -> None:
        if self._span is None:
            return
        self._span.set_attribute("keb.outcome", outcome)
        if r.retry_after:
            self._span.set_attribute("keb.retry_after", float(r.retry_after))
        if r.error:
            self._span.set_attributes({"error.type": r.error["reason"], "keb.component": r.error["component"]})
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, r.error["message"]))


@contextmanager
def span_of(worker: str, subject: str, c: Command, deliveries: int) -> Iterator[Span]:
    """Begins the span of an execution as a child of the step's span in the command."""
    if trace is None:
        yield Span(None, c.traceparent)
        return
    o, propagator = c.operation, TraceContextTextMapPropagator()
    with trace.get_tracer("keb_worker").start_as_current_span(
        f"process {subject}", context=propagator.extract({"traceparent": c.traceparent}), kind=trace.SpanKind.CONSUMER, attributes={
            "messaging.system": "nats", "messaging.operation.type": "process", "messaging.operation.name": "process",
            "messaging.destination.name": subject, "messaging.consumer.group.name": worker, "messaging.message.id": c.dispatch_id,
            "keb.operation.id": o["id"], "keb.operation.type": o["type"], "keb.instance.id": o["instanceId"],
            "keb.plan": (o.get("plan") or {}).get("name", ""), "keb.stage": c.stage, "keb.step": c.step,
            "keb.stage.attempt": c.stage_attempt, "keb.step.attempt": c.step_attempt, "keb.dispatch": c.dispatch,
            "keb.deliveries": deliveries, "keb.worker": worker,
        },
    ) as span:
        carrier: dict[str, str] = {}
        propagator.inject(carrier)
        yield Span(span, carrier.get("traceparent", c.traceparent))
