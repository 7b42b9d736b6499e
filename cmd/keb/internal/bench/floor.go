package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/services/orchestrator"
)

// The floor is the smallest program of the same shape: the same messages on the same streams, with their headers and
// sizes, published, fetched and acknowledged; and the same rows, written in natural batches. Nothing is decoded, decided,
// retried or timed. The event id holds the position of a message: "<operation id>/<number of the remote step>".

const (
	// remoteSteps is the number of steps that go over the bus.
	remoteSteps    = stepsPerOperation - 2
	floorBatch     = 500
	floorPrefetch  = 1000
	floorHandlers  = 2
	floorPublished = 20 * time.Second
)

// templates are the messages of one operation; only their ids change.
type templates struct{ request, command, result, stepFact, operationFact nats.Msg }

func newTemplates() (t templates, err error) {
	op := newOperation()
	now := time.Now().UTC()
	details, err := json.Marshal(map[string]map[string]string{"provisioner": {"runtimeId": op.ID, "operationId": op.ID}})
	if err != nil {
		return t, err
	}
	base := event.Result{
		OperationID: op.ID, Cursor: 10, Stage: "create_runtime", Step: "Create_Runtime_Without_Kyma",
		Worker: event.Worker{Name: "provisioner", Version: "1.0.0"}, StartedAt: now, FinishedAt: now,
	}
	fact := event.Fact{OperationID: op.ID, OperationType: op.Type, InstanceID: op.InstanceID, Cursor: 10, OccurredAt: now}
	at := event.Position{Stage: base.Stage, Step: base.Step, StageAttempt: 1, StepAttempt: 1}
	for _, m := range []struct {
		into    *nats.Msg
		t       event.Type
		subject string
		payload any
	}{
		{&t.request, event.TypeOperationRequested, event.RequestSubject(op.Type), event.OperationRequested{Operation: op, RequestedAt: now}},
		{&t.command, event.TypeStepExecute, event.CommandSubject("provisioner", base.Step), event.StepExecute{
			Operation: op, Details: details, Stage: base.Stage, Step: base.Step, Cursor: 10, Dispatch: 1, StageAttempt: 1, StepAttempt: 1,
			FirstTriedAt: now, ExecuteBefore: now,
		}},
		{&t.result, event.TypeStepSucceeded, event.ResultSubject("provisioner", base.Step), event.StepSucceeded{Result: base}},
		{&t.stepFact, event.TypeStepFinished, event.FactSubject(op.Type, event.TypeStepFinished), event.StepFinished{
			Fact: fact, Position: at, Worker: base.Worker, Outcome: event.OutcomeSucceeded, StartedAt: now, FinishedAt: now, Next: &at,
		}},
		{
			&t.operationFact, event.TypeOperationSucceeded, event.FactSubject(op.Type, event.TypeOperationSucceeded),
			event.OperationSucceeded{Fact: fact},
		},
	} {
		e, err := bus.New(m.t, op.ID, event.SourceBroker, op.ID, now, m.payload)
		if err != nil {
			return t, err
		}
		header, data, err := bus.Encode(&e)
		if err != nil {
			return t, err
		}
		*m.into = nats.Msg{Subject: m.subject, Header: header, Data: data}
	}
	return t, nil
}

const headerID = "ce-id"

// stamp copies a template with an id; deduplicated messages also carry it as their Nats-Msg-Id.
func stamp(template *nats.Msg, id string, deduplicated bool) *nats.Msg {
	header := make(nats.Header, len(template.Header)+1)
	maps.Copy(header, template.Header)
	header[headerID] = []string{id}
	if deduplicated {
		header[jetstream.MsgIDHeader] = []string{id}
	}
	return &nats.Msg{Subject: template.Subject, Header: header, Data: template.Data}
}

// floor is the reference program.
type floor struct {
	t      templates
	js, wk jetstream.JetStream
	begin  *sql.Stmt
	apply  *sql.Stmt
	end    *sql.Stmt
}

const (
	floorBeginSQL = `
WITH v AS ( -- a cluster may deliver a request twice
    SELECT n.id FROM unnest($1::uuid[]) AS n(id) WHERE NOT EXISTS (SELECT FROM orchestrator.operations o WHERE o.id = n.id)
), r AS (
    INSERT INTO orchestrator.requests (operation_id, body, definition) SELECT id, $2::jsonb, 'floor' FROM v
), n AS (
    INSERT INTO orchestrator.instances (instance_id, running) SELECT id::text, id FROM v
), h AS (
    INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
    SELECT id, c, 0, 0, 1, 1, now(), now(), 'succeeded' FROM v, generate_series(1, 3) AS c
)
INSERT INTO orchestrator.operations
    (id, type, instance_id, plan, created_at, state, version, cursor, stage, step, stage_attempt, step_attempt, dispatch, stage_memory,
     first_tried_at, execute_before, started_at, deadline)
SELECT id, 'provision', id::text, 'azure', now(), 'in progress', 1, 3, 1, 1, 1, 1, 1, false, now(), now() + interval '1 hour', now(),
    now() + interval '1 day' FROM v`
	floorApplySQL = `
WITH v AS (SELECT * FROM unnest($1::uuid[], $2::int4[]) AS v(id, n)), u AS (
    UPDATE orchestrator.operations o SET version = o.version + 1, cursor = v.n + 3, stage = 1, step = v.n, first_tried_at = now(),
        execute_before = now() + interval '1 hour'
    FROM v WHERE o.id = v.id AND o.cursor < v.n + 3 RETURNING o.id, v.n
)
INSERT INTO orchestrator.history
    (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind, worker_version)
SELECT id, n + 3, 1, n, 1, 1, now(), now(), 'succeeded', '1.0.0' FROM u`
	floorEndSQL = `
WITH u AS (
    UPDATE orchestrator.operations o SET version = o.version + 1, state = 'succeeded', execute_before = NULL, finished_at = now()
    FROM unnest($1::uuid[]) AS v(id) WHERE o.id = v.id AND o.state = 'in progress' RETURNING o.id
), n AS (
    UPDATE orchestrator.instances n SET running = NULL FROM u WHERE n.instance_id = u.id::text
)
INSERT INTO orchestrator.history (operation_id, cursor, stage, step, stage_attempt, step_attempt, started_at, finished_at, kind)
SELECT id, 100, -1, -1, 0, 0, now(), now(), 'operation succeeded' FROM u`
)

// factsAt returns the number of facts after the n-th remote step: one for the step, and one for each stage that it ends.
func factsAt(n int) int {
	if n == 11 || n == 12 || n == 13 || n == remoteSteps {
		return 2
	}
	return 1
}

func runFloor(ctx context.Context, m *machine, load load) (_ result, err error) {
	p, err := m.parts(ctx, "floor")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := orchestrator.Migrate(ctx, p.db); err != nil {
		return result{}, err
	}
	b, err := bus.Connect(ctx, bus.Config{URL: p.natsURL, Name: "bench", Replicas: p.replicas}, bus.Deps{Log: m.log})
	if err != nil {
		return result{}, err
	}
	defer b.Close()
	if err := b.EnsureStreams(ctx); err != nil {
		return result{}, err
	}
	db, err := postgres.Open(ctx, postgres.Config{URL: p.databaseURL, MaxOpen: 3})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	f := &floor{}
	if f.t, err = newTemplates(); err != nil {
		return result{}, err
	}
	for _, s := range []struct {
		into  **sql.Stmt
		query string
	}{{&f.begin, floorBeginSQL}, {&f.apply, floorApplySQL}, {&f.end, floorEndSQL}} {
		if *s.into, err = db.PrepareContext(ctx, s.query); err != nil {
			return result{}, fmt.Errorf("prepare: %w", err)
		}
	}
	conns := make([]*nats.Conn, 2)
	for i, js := range []*jetstream.JetStream{&f.js, &f.wk} {
		if conns[i], err = nats.Connect(p.natsURL); err != nil {
			return result{}, err
		}
		defer conns[i].Close()
		if *js, err = jetstream.New(conns[i], jetstream.WithPublishAsyncMaxPending(16_384)); err != nil {
			return result{}, err
		}
	}
	return f.run(ctx, m, p, load, b.NATS())
}

func (f *floor) run(ctx context.Context, m *machine, p *parts, load load, follow *nats.Conn) (_ result, err error) {
	running, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	var mu sync.Mutex
	var problems []error
	serve := func(js jetstream.JetStream, stream event.Stream, name string, handlers int, handle func(context.Context, []jetstream.Msg) error) error {
		consumer, err := js.CreateOrUpdateConsumer(ctx, string(stream), jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000, AckWait: 30 * time.Second,
		})
		if err != nil {
			return err
		}
		arrived := make(chan jetstream.Msg, floorPrefetch)
		pull, err := consumer.Consume(func(msg jetstream.Msg) { arrived <- msg }, jetstream.PullMaxMessages(floorPrefetch))
		if err != nil {
			return err
		}
		ended.Go(func() { <-running.Done(); pull.Stop() })
		for range handlers {
			ended.Go(func() {
				if err := batches(running, arrived, handle); err != nil {
					mu.Lock()
					defer mu.Unlock()
					problems = append(problems, err)
				}
			})
		}
		return nil
	}
	defer func() {
		cancel()
		ended.Wait()
		err = errors.Join(append(problems, err)...)
	}()
	if err := serve(f.js, event.StreamRequests, "floor", 1, f.requests); err != nil {
		return result{}, err
	}
	if err := serve(f.js, event.StreamResults, "floor", floorHandlers, f.results); err != nil {
		return result{}, err
	}
	if err := serve(f.wk, event.StreamCommands, "floor", floorHandlers, f.commands); err != nil {
		return result{}, err
	}
	l := newLoop(load.inFlight)
	sub, err := follow.Subscribe(event.FactSubject(event.Provision, event.TypeOperationSucceeded), func(msg *nats.Msg) {
		id, _, _ := strings.Cut(msg.Header.Get(headerID), "/")
		l.finished(id)
	})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, sub.Unsubscribe()) }()
	r, err := l.run(ctx, m, p.db, load, func(n int) error {
		messages := make([]*nats.Msg, n)
		for i := range messages {
			id := uuid.Must(uuid.NewV7()).String()
			l.begin(id)
			messages[i] = stamp(&f.t.request, id, true)
		}
		return publish(f.wk, messages)
	})
	r.Scenario = "floor"
	return r, err
}

// batches returns the messages that arrived during the last batch. As in KEB, the last message of a batch is acknowledged
// with the next one, so that the streams do not run empty.
func batches(ctx context.Context, arrived <-chan jetstream.Msg, handle func(context.Context, []jetstream.Msg) error) error {
	var held []jetstream.Msg
	for {
		batch := make([]jetstream.Msg, 0, floorBatch)
		select {
		case <-ctx.Done():
			return nil
		case msg := <-arrived:
			batch = append(batch, msg)
		}
		for len(batch) < floorBatch && len(arrived) > 0 {
			select {
			case msg := <-arrived:
				batch = append(batch, msg)
			default:
			}
		}
		if err := handle(context.WithoutCancel(ctx), batch); err != nil {
			return err
		}
		last := len(batch) - 1
		for _, msg := range slices.Concat(held, batch[:last]) {
			if err := msg.Ack(); err != nil {
				return err
			}
		}
		held = batch[last:]
	}
}

// floorShared is the number of facts that share one acknowledgement of the stream.
const floorShared = 64

// publish sends messages and waits for the acknowledgements of the streams. Facts come last and share acknowledgements.
func publish(js jetstream.JetStream, messages []*nats.Msg) error {
	futures := make([]jetstream.PubAckFuture, 0, len(messages))
	quiet := 0
	for i, msg := range messages {
		if strings.HasPrefix(msg.Subject, "keb.fact.") && quiet < floorShared-1 && i+1 < len(messages) {
			if err := js.Conn().PublishMsg(msg); err != nil {
				return err
			}
			quiet++
			continue
		}
		quiet = 0
		future, err := js.PublishMsgAsync(msg)
		if err != nil {
			return err
		}
		futures = append(futures, future)
	}
	timer := time.NewTimer(floorPublished)
	defer timer.Stop()
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		case <-timer.C:
			return errors.New("the bus did not acknowledge a message in time")
		}
	}
	return nil
}

func uuids(ids []string) string { return "{" + strings.Join(ids, ",") + "}" }

func (f *floor) requests(ctx context.Context, batch []jetstream.Msg) error {
	ids := make([]string, len(batch))
	messages := make([]*nats.Msg, 0, 4*len(batch))
	for i, msg := range batch {
		id := msg.Headers().Get(headerID)
		ids[i] = id
		messages = append(messages, stamp(&f.t.command, id+"/1", true))
		for range 4 { // started, two steps inside the orchestrator, one stage
			messages = append(messages, stamp(&f.t.stepFact, id+"/0", false))
		}
	}
	if _, err := f.begin.ExecContext(ctx, uuids(ids), string(f.t.request.Data)); err != nil {
		return err
	}
	return publish(f.js, messages)
}

func (f *floor) commands(_ context.Context, batch []jetstream.Msg) error {
	messages := make([]*nats.Msg, len(batch))
	for i, msg := range batch {
		messages[i] = stamp(&f.t.result, msg.Headers().Get(headerID), true)
	}
	return publish(f.wk, messages)
}

func (f *floor) results(ctx context.Context, batch []jetstream.Msg) error {
	var ids, numbers, last []string
	var messages []*nats.Msg
	for _, msg := range batch {
		id, number, _ := strings.Cut(msg.Headers().Get(headerID), "/")
		n, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		ids, numbers = append(ids, id), append(numbers, number)
		if n < remoteSteps {
			messages = append(messages, stamp(&f.t.command, id+"/"+strconv.Itoa(n+1), true))
		} else {
			last = append(last, id)
		}
	}
	for i, id := range ids {
		n, _ := strconv.Atoi(numbers[i])
		for range factsAt(n) {
			messages = append(messages, stamp(&f.t.stepFact, id+"/"+numbers[i], false))
		}
	}
	for _, id := range last {
		messages = append(messages, stamp(&f.t.operationFact, id+"/end", false))
	}
	if _, err := f.apply.ExecContext(ctx, uuids(ids), "{"+strings.Join(numbers, ",")+"}"); err != nil {
		return err
	}
	if len(last) > 0 {
		if _, err := f.end.ExecContext(ctx, uuids(last)); err != nil {
			return err
		}
	}
	return publish(f.js, messages)
}
