import assert from "node:assert/strict";
import { test } from "node:test";
import { context, propagation, SpanKind, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { note, traced } from "../src/monitoring.js";

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

test("without an SDK the trace of the command goes on", async () => {
  assert.equal(await traced("process", "x", PARENT, "CONSUMER", {}, async (_, traceparent) => traceparent), PARENT);
  assert.equal(await traced("process", "x", undefined, "CONSUMER", {}, async (_, traceparent) => traceparent), undefined);
});

test("with an SDK an execution is a span below the command, and calls are below the execution", async () => {
  const exporter = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const error = { component: "avs", reason: "err_x", message: "down" };
  const own = await traced("process", "x", PARENT, "CONSUMER", { "keb.step": "S" }, async (span, traceparent) => {
    await traced("request", "x", undefined, "CLIENT", {}, async () => {});
    note(span, { outcome: "retry", retryAfter: 5, error });
    return traceparent;
  });
  const [request, execution] = exporter.getFinishedSpans();
  assert.equal(execution.parentSpanContext?.spanId, "b7ad6b7169203331");
  assert.equal(request.parentSpanContext?.spanId, execution.spanContext().spanId);
  assert.equal(own, `00-0af7651916cd43dd8448eb211c80319c-${execution.spanContext().spanId}-01`);
  assert.deepEqual([execution.name, execution.kind], ["process x", SpanKind.CONSUMER]);
  assert.deepEqual(execution.attributes, { "messaging.system": "nats", "messaging.destination.name": "x", "keb.step": "S", "keb.outcome": "retry", "keb.retry_after": 5, "error.type": "err_x", "keb.component": "avs" });
});
