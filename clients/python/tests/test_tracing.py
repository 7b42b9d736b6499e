"""The spans of executions, with a stand-in for OpenTelemetry: its packages are optional."""

from __future__ import annotations

import types
import unittest
from contextlib import contextmanager
from typing import Any
from unittest import mock

from keb_worker.testing import Given

try:
    from keb_worker import metrics
except ImportError:
    metrics = None  # type: ignore[assignment]

COMMAND = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPAN = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


class Recorder:
    """A tracer, its span and the propagator."""

    def __init__(self) -> None:
        self.started: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}
        self.status: Any = None

    @contextmanager
    def start_as_current_span(self, name: str, context: Any, **options: Any) -> Any:
        self.started = {"name": name, "context": context, **options}
        yield self

    def is_recording(self) -> bool:
        return True

    def get_span_context(self) -> Any:
        return types.SimpleNamespace(trace_id=int(SPAN.split("-")[1], 16))

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def set_attributes(self, values: dict[str, Any]) -> None:
        self.attributes |= values

    def set_status(self, status: Any) -> None:
        self.status = status

    def extract(self, carrier: dict[str, str]) -> Any:
        return carrier["traceparent"]

    def inject(self, carrier: dict[str, str]) -> None:
        carrier["traceparent"] = SPAN


@unittest.skipUnless(metrics, "prometheus_client is not installed")
class TestSpan(unittest.TestCase):
    def test_without_opentelemetry_the_trace_is_passed_on(self) -> None:
        with mock.patch.object(metrics, "trace", None), metrics.span_of("process", "CONSUMER", {}, COMMAND) as (span, traceparent):
            metrics.note(span, {"outcome": "succeeded"})
        self.assertEqual((span, traceparent), (None, COMMAND))

    def test_execution_is_a_child_of_the_command(self) -> None:
        r = Recorder()
        trace = types.SimpleNamespace(
            get_tracer=lambda name: r, SpanKind={"CONSUMER": "consumer"}, StatusCode=types.SimpleNamespace(ERROR="error"),
            Status=lambda code, text: (code, text))
        error = {"component": "avs", "reason": "err_x", "message": "no"}
        with mock.patch.object(metrics, "trace", trace), mock.patch.object(metrics, "TraceContextTextMapPropagator", lambda: r, create=True):
            attributes = metrics.execution_attributes("w", "keb.command.w.Hello_World", Given().command("Hello_World"), 2)
            with metrics.span_of("process keb.command.w.Hello_World", "CONSUMER", attributes, COMMAND) as (span, traceparent):
                metrics.note(span, {"outcome": "retry", "retryAfter": 5, "error": error})
        self.assertEqual((r.started["name"], r.started["context"]), ("process keb.command.w.Hello_World", COMMAND))
        self.assertTrue(all(isinstance(v, (str, int)) for v in r.started["attributes"].values()))
        self.assertEqual(r.attributes, {"keb.outcome": "retry", "keb.retry_after": 5.0, "error.type": "err_x", "keb.component": "avs"})
        self.assertEqual((r.status, span, traceparent), (("error", "no"), r, SPAN))


if __name__ == "__main__":
    unittest.main()
