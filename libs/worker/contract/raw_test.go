package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker/contract"
)

// raw is a worker written against the wire contract alone, as one in another language is, with at most one flaw.
type raw struct {
	flaw flaw
	env  contract.Environment
	out  io.Writer
	nc   *nats.Conn
	js   jetstream.JetStream

	fatal   chan error
	running sync.WaitGroup
	slots   chan struct{}

	mu             sync.Mutex
	looked, thawed time.Time
	answered       map[string]bool
	cancels        map[string]chan struct{} // of running commands, by operation and cursor
	count          int
	// kept are the bytes of the commands that a worker with a leak keeps.
	kept *atomic.Int64
}

const (
	rawName = "raw"
	rawStep = "Raw_Step"
)

// rawCommand is what raw knows of a command.
type rawCommand struct {
	Operation struct {
		ID         string `json:"id"`
		InstanceID string `json:"instanceId"`
		Parameters struct {
			Take  string `json:"take"`
			Clean bool   `json:"clean"`
		} `json:"parameters"`
	} `json:"operation"`
	Details struct {
		Raw struct{ ID string } `json:"raw"`
	} `json:"details"`
	Stage         string    `json:"stage"`
	StageAttempt  int       `json:"stageAttempt"`
	Step          string    `json:"step"`
	Cursor        int       `json:"cursor"`
	Dispatch      int       `json:"dispatch"`
	StageMemory   bool      `json:"stageMemory"`
	ExecuteBefore time.Time `json:"executeBefore"`
}

func rawWorker(f flaw) contract.Starter {
	kept := new(atomic.Int64)
	return measured{kept: kept, Starter: contract.Func(func(ctx context.Context, env contract.Environment, out io.Writer) error {
		return newRaw(f, env, out, kept).run(ctx)
	})}
}

func newRaw(f flaw, env contract.Environment, out io.Writer, kept *atomic.Int64) *raw {
	return &raw{
		flaw: f, env: env, out: out, fatal: make(chan error, 1), slots: make(chan struct{}, env.Concurrency), answered: map[string]bool{},
		cancels: map[string]chan struct{}{}, kept: kept,
	}
}

// rawProgram is the first argument of the test binary as a raw worker, before its flaw.
const rawProgram = "raw-worker"

// rawProcess is rawWorker in a process of its own, because only a process can be frozen.
func rawProcess(f flaw) contract.Starter { return contract.Command(os.Args[0], rawProgram, string(f)) }

// runRaw is the main function of a raw worker.
func runRaw(f flaw) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	concurrency, _ := strconv.Atoi(os.Getenv("KEB_WORKER_CONCURRENCY"))
	env := contract.Environment{
		URL: os.Getenv("KEB_NATS_URL"), User: os.Getenv("KEB_NATS_USER"), Password: os.Getenv("KEB_NATS_PASSWORD"),
		StageKeys: os.Getenv("KEB_STAGE_KEYS"), Concurrency: max(1, concurrency),
	}
	if err := newRaw(f, env, os.Stdout, new(atomic.Int64)).run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// measured starts instances whose memory is what they keep of commands: in the process of the test it cannot be measured.
type measured struct {
	contract.Starter

	kept *atomic.Int64
}

func (m measured) Start(env contract.Environment, output io.Writer) (contract.Instance, error) {
	i, err := m.Starter.Start(env, output)
	return measuredInstance{i, m.kept}, err
}

type measuredInstance struct {
	contract.Instance

	kept *atomic.Int64
}

func (m measuredInstance) Memory() (int64, error) { return 20<<20 + m.kept.Load(), nil }

func (r *raw) run(ctx context.Context) error {
	var err error
	options := []nats.Option{
		nats.UserInfo(r.env.User, r.env.Password), nats.CustomInboxPrefix("_INBOX_" + r.env.User),
		nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond),
		nats.DisconnectErrHandler(func(nc *nats.Conn, _ error) {
			if ctx.Err() != nil {
				nc.Close() // killed: nothing waits for an answer any more
			}
		}),
	}
	if r.flaw == neverReconnects {
		options = append(options, nats.NoReconnect())
	}
	if r.nc, err = nats.Connect(r.env.URL, options...); err != nil {
		return err
	}
	defer r.nc.Close()
	defer context.AfterFunc(ctx, func() {
		if !r.nc.IsConnected() {
			r.nc.Close()
		}
	})()
	if r.js, err = jetstream.New(r.nc); err != nil {
		return err
	}
	if r.flaw == triesMore {
		if _, err := r.nc.SubscribeSync("keb.result.>"); err != nil {
			return err
		}
	}
	if r.flaw != ignoresCancels {
		if _, err := r.nc.Subscribe("keb.worker."+rawName+".cancel", r.cancel); err != nil {
			return err
		}
	}
	if r.flaw == printsThePassword {
		fmt.Fprintf(r.out, "logging on as %s with %s\n", r.env.User, r.env.Password)
	}
	switch r.flaw {
	case needsKeys:
		if r.env.StageKeys == "" {
			return errors.New("KEB_STAGE_KEYS is missing")
		}
	case needsTheBucket:
		if _, err := r.js.KeyValue(ctx, "keb_stage"); err != nil {
			return err
		}
	}
	steps := rawStep
	if r.flaw == registersNoStep {
		steps = ""
	}
	service, err := micro.AddService(r.nc, micro.Config{
		Name: "keb-worker-" + rawName, Version: "0.1.0", Metadata: map[string]string{"worker": rawName, "version": "0.1", "steps": steps},
	})
	if err != nil {
		return err
	}
	defer service.Stop()

	pull := max(1, r.env.Concurrency/2)
	switch r.flaw {
	case takesTooMany:
		pull = 500
	case missesItsConsumer:
		// The library asks for more when it takes one that was delivered, unless it is just asking. Who has only few then has none, and
		// goes on by the next missing heartbeat.
		pull = 2 * r.env.Concurrency
	}
	r.look()
	r.running.Go(func() {
		for r.wait(ctx) {
			r.look()
		}
	})
	for ctx.Err() == nil {
		consumer, err := r.js.Consumer(ctx, "KEB_COMMANDS", rawName)
		if err != nil {
			if !r.wait(ctx) {
				break
			}
			continue
		}
		heartbeat := 500 * time.Millisecond
		if r.flaw == missesItsConsumer || r.flaw == believesWhatItGot { // the library drops what it got when a heartbeat is missing
			heartbeat = 30 * time.Second
		}
		messages, err := consumer.Messages(jetstream.PullMaxMessages(pull), jetstream.PullHeartbeat(heartbeat), jetstream.PullExpiry(5*time.Minute))
		if err != nil {
			return err
		}
		end := context.AfterFunc(ctx, messages.Drain)
		if err := r.consume(ctx, messages); err != nil {
			end()
			messages.Stop()
			return err
		}
		end()
	}
	select {
	case err := <-r.fatal:
		return err
	default:
	}
	if r.flaw == dropsWhatItHolds {
		return nil
	}
	r.running.Wait()
	if r.flaw == endsWithAnError {
		return errors.New("bye")
	}
	if !r.nc.IsConnected() {
		return nil // killed
	}
	return r.nc.FlushTimeout(5 * time.Second)
}

// look looks at the clock, and returns the last time at which the worker was frozen.
func (r *raw) look() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.looked) > 3*time.Second {
		r.thawed = now
	}
	r.looked = now
	return r.thawed
}

func (r *raw) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

func (r *raw) consume(ctx context.Context, messages jetstream.MessagesContext) error {
	for {
		m, err := messages.Next()
		select {
		case err := <-r.fatal:
			return err
		default:
		}
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			if r.nc.IsClosed() {
				return err
			}
			if r.flaw == missesItsConsumer {
				<-ctx.Done()
				return nil
			}
			messages.Stop()
			return nil // look for the consumer again
		}
		if ctx.Err() != nil {
			if r.flaw != dropsWhatItHolds {
				_ = m.Nak()
			}
			continue
		}
		if r.flaw == takesTooMany {
			r.running.Go(func() {
				r.slots <- struct{}{}
				defer func() { <-r.slots }()
				r.execute(ctx, m)
			})
			continue
		}
		r.slots <- struct{}{}
		r.running.Go(func() {
			defer func() { <-r.slots }()
			r.execute(ctx, m)
		})
	}
}

func (r *raw) execute(ctx context.Context, m jetstream.Msg) {
	var c rawCommand
	decoder := json.NewDecoder(bytes.NewReader(m.Data()))
	switch r.flaw {
	case hangs:
		<-ctx.Done()
		return
	case keepsCommands:
		r.kept.Add(int64(len(m.Data())))
	}
	if r.flaw == crashesOnMembers && bytes.Contains(m.Data(), []byte("addedLater")) {
		select {
		case r.fatal <- errors.New("panic: unknown member addedLater"):
		default:
		}
		r.nc.Close()
		return
	}
	err := decoder.Decode(&c)
	if err != nil || c.Operation.ID == "" || m.Headers().Get("ce-type") == "" && m.Headers()["ce-type"] == nil ||
		!strings.HasSuffix(value(m, "ce-type"), "step.execute.v1") {
		if r.flaw == forgetsTheUnreadable {
			_ = m.Ack()
			return
		}
		dead := nats.NewMsg("keb.dead.KEB_COMMANDS")
		dead.Data = m.Data()
		dead.Header.Set("Keb-Dead-Reason", "not readable")
		if _, err := r.js.PublishMsg(context.Background(), dead); err == nil {
			_ = m.Term()
		}
		return
	}
	if c.Step != rawStep {
		if r.flaw == takesForeignSteps {
			_ = m.Ack()
			return
		}
		_ = m.NakWithDelay(time.Second)
		return
	}
	if !time.Now().Before(c.ExecuteBefore) && r.flaw != executesLate {
		_ = m.Ack()
		return
	}
	id := fmt.Sprintf("%s/%d/%d", c.Operation.ID, c.Cursor, c.Dispatch)
	r.mu.Lock()
	r.count++
	nth, known := r.count, r.answered[id]
	r.mu.Unlock()
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	received := r.flaw == flawless && meta.Timestamp.Before(r.look()) // with another flaw, a slow machine would show something else
	if (meta.NumDelivered > 1 || received) && r.flaw != neverAsks {
		current, err := r.current(&c)
		switch {
		case err != nil && r.flaw != guesses:
			_ = m.NakWithDelay(time.Second)
			return
		case err == nil && !current && r.flaw != ignoresTheAnswer:
			_ = m.Ack()
			return
		}
	}
	switch {
	case r.flaw == ignoresRedeliveries && known && meta.NumDelivered > 1,
		r.flaw == losesSome && nth%40 == 0,
		r.flaw == refusesLarge && len(m.Data()) > 512<<10:
		return
	case r.flaw == ignoresDispatches && c.Dispatch > 1:
		_ = m.Ack()
		return
	case r.flaw == acknowledgesFirst:
		_ = m.Ack()
	}
	if r.flaw == leavesKeys {
		_ = r.nc.Publish("$KV.keb_stage.cache."+c.Operation.InstanceID, []byte("x"))
	}
	started := time.Now()
	outcome := r.work(ctx, m, &c, nth)
	if r.flaw == dropsWhatItHolds && ctx.Err() != nil {
		return
	}
	r.publish(m, &c, id, started, outcome)
	if r.flaw == asksForMoreTooLate && nth == 1 {
		question := fmt.Sprintf(`{"operationId":%q,"cursor":%d,"seconds":60}`, c.Operation.ID, c.Cursor)
		_, _ = r.nc.Request("keb.ask.orchestrator.extend."+rawName, []byte(question), 5*time.Second)
	}
	if r.flaw == answersTwice {
		r.publish(m, &c, id, started, "failed")
	}
}

// cancel ends the step of a cancelled command.
func (r *raw) cancel(m *nats.Msg) {
	var notice struct {
		OperationID string `json:"operationId"`
		Cursor      int    `json:"cursor"`
	}
	if json.Unmarshal(m.Data, &notice) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprintf("%s/%d", notice.OperationID, notice.Cursor)
	if end, ok := r.cancels[id]; ok {
		close(end)
		delete(r.cancels, id)
	}
}

// work is the step itself, of the nth command.
func (r *raw) work(ctx context.Context, m jetstream.Msg, c *rawCommand, nth int) (outcome string) {
	take, _ := time.ParseDuration(c.Operation.Parameters.Take)
	if take == 0 && (r.flaw == acknowledgesFirst || r.flaw == dropsWhatItHolds) { // so that it is in the middle when it is ended
		take = 100 * time.Millisecond
		if nth%2 == 0 {
			take = time.Second // the commands that run at once do not all end at once: at each moment one is in the middle
		}
	}
	until := time.NewTimer(take)
	defer until.Stop()
	limit := time.NewTimer(time.Until(c.ExecuteBefore))
	defer limit.Stop()
	progress := time.NewTicker(200 * time.Millisecond)
	defer progress.Stop()
	end, id := make(chan struct{}), fmt.Sprintf("%s/%d", c.Operation.ID, c.Cursor)
	r.mu.Lock()
	r.cancels[id] = end
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.cancels, id)
	}()
	for take > 0 {
		select {
		case <-end:
			return "retry"
		case <-until.C:
			take = 0
		case <-limit.C:
			if r.flaw == reportsTooLong {
				r.report(m, 2*time.Second)
			}
			if r.flaw != goesOnTooLong && r.flaw != executesLate {
				return "retry"
			}
		case <-progress.C:
			if r.flaw != keepsSilent && (time.Now().Before(c.ExecuteBefore) || r.flaw == reportsTooLong) {
				_ = m.InProgress()
			}
		}
	}
	switch {
	case r.flaw == panics, r.flaw == panicsOnText && bytes.Contains(m.Data(), []byte("漢")):
		return "panicked"
	case c.Operation.Parameters.Clean && (r.flaw == leavesObjects || c.Details.Raw.ID != "" && c.Details.Raw.ID != c.Operation.InstanceID):
		return "failed"
	case r.flaw == failsOnText && bytes.Contains(m.Data(), []byte("漢")),
		r.flaw == failsWithoutMemory && c.StageMemory,
		r.flaw == failsWithoutKeys && r.env.StageKeys == "",
		r.flaw == failsWithoutBucket && (!r.hasBucket() || r.remember(c) != nil):
		return "failed"
	case r.flaw == believesTheReplica && c.StageMemory && !r.hasMarker(c):
		return "lost"
	case r.flaw == errorWithoutReason, r.flaw == waitsForDays:
		return "retry"
	}
	return "succeeded"
}

// report reports progress for a while after the step has ended.
func (r *raw) report(m jetstream.Msg, last time.Duration) {
	r.running.Go(func() {
		for end := time.Now().Add(last); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
			_ = r.nc.Publish(m.Reply(), []byte("+WPI"))
		}
	})
}

func (r *raw) publish(m jetstream.Msg, c *rawCommand, id string, started time.Time, outcome string) {
	finished := time.Now()
	if r.flaw == endsBeforeItBegins {
		finished = started.Add(-time.Minute)
	}
	body := map[string]any{
		"operationId": c.Operation.ID, "cursor": c.Cursor, "stage": c.Stage, "step": c.Step,
		"worker": map[string]any{"name": rawName, "version": "0.1"}, "startedAt": started, "finishedAt": finished,
		"details": map[string]any{"id": c.Operation.InstanceID},
	}
	failure := map[string]any{"component": rawName, "reason": "err_internal", "message": "it did not work"}
	switch outcome {
	case "panicked":
		outcome, failure["reason"] = "failed", "err_step_panicked"
		fallthrough
	case "failed":
		body["error"] = failure
	case "retry":
		body["retryAfter"] = 1.5
	}
	kind := "io.kyma-project.keb.step." + outcome + ".v1"
	if outcome == "lost" {
		kind = "io.kyma-project.keb.stage.lost.v1"
	}
	subject, source, msgID, trace := "keb.result."+rawName+"."+c.Step, "/keb/worker/"+rawName, id, value(m, "ce-traceparent")
	switch r.flaw {
	case wrongSubject:
		subject = "keb.result." + rawName + ".result"
	case wrongSource:
		source = "raw"
	case noMessageID:
		msgID = ""
	case noCursor:
		delete(body, "cursor")
	case noStart:
		delete(body, "startedAt")
	case noTrace:
		trace = ""
	case patchesOthers:
		body["details"] = map[string]any{"another-worker": map[string]any{"id": "mine now"}}
	case errorWithoutReason:
		body["error"] = map[string]any{"message": "no idea"}
	case waitsForDays:
		body["retryAfter"] = 10 * 24 * 3600
	case answersWrongly:
		body["details"] = map[string]any{"id": "something else"}
	case leaksCredentials:
		body["message"] = "logged on as " + r.claim(c)
	case writesInTheClear:
		body["stageMemory"] = true
		_, _ = r.js.Publish(context.Background(), fmt.Sprintf("$KV.keb_stage.%s.%s.%d.value=2Eword", c.Operation.ID, c.Stage, c.StageAttempt), []byte("a word"))
	case failsWithoutBucket:
		body["stageMemory"] = outcome == "succeeded"
	case dropsWithoutKeys:
		if r.env.StageKeys != "" {
			body["stageMemory"] = r.remember(c) == nil
		}
	case hidesItsWrites:
		_ = r.remember(c) // without the entry the check does not fail
	case tellsItsMemory:
		body["message"] = "I remember " + r.recall(c)
	}
	data, _ := json.Marshal(body)
	out := nats.NewMsg(subject)
	out.Data = data
	for name, v := range map[string]string{
		"ce-specversion": "1.0", "ce-id": id, "ce-type": kind, "ce-source": source, "ce-time": time.Now().UTC().Format(time.RFC3339Nano),
		"ce-datacontenttype": "application/json", "ce-subject": c.Operation.ID, "ce-traceparent": trace, "Nats-Msg-Id": msgID,
	} {
		if v != "" {
			out.Header[name] = []string{v}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := r.js.PublishMsg(ctx, out)
	if err != nil && r.flaw != ignoresRefusals {
		return // it comes again
	}
	r.mu.Lock()
	r.answered[id] = true
	r.mu.Unlock()
	if r.flaw != acknowledgesFirst {
		_ = m.Ack()
	}
}

// current asks the orchestrator whether it still waits for a command.
func (r *raw) current(c *rawCommand) (bool, error) {
	question := fmt.Sprintf(`{"commands":[{"operationId":%q,"cursor":%d}]}`, c.Operation.ID, c.Cursor)
	if r.flaw == asksWrongly {
		question = fmt.Sprintf(`{"commands":["%s/%d"]}`, c.Operation.ID, c.Cursor)
	}
	m, err := r.nc.Request("keb.ask.orchestrator.current."+rawName, []byte(question), time.Second)
	if err != nil {
		return false, err
	}
	var answer struct {
		Error   string
		Current []struct{ OperationID string }
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return false, err
	}
	if answer.Error != "" {
		return false, errors.New(answer.Error)
	}
	return len(answer.Current) > 0, nil
}

// claim asks the broker for credentials.
func (r *raw) claim(c *rawCommand) string {
	question := fmt.Sprintf(`{"instanceId":%q,"operationId":%q,"name":"sm_operator_credentials"}`, c.Operation.InstanceID, c.Operation.ID)
	answer, err := r.nc.Request("keb.ask.broker.credentials."+rawName, []byte(question), 5*time.Second)
	if err != nil {
		return err.Error()
	}
	return string(answer.Data)
}

// recall looks into the stage memory.
func (r *raw) recall(c *rawCommand) string {
	if !c.StageMemory {
		return "nothing"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	memory, scope, err := r.memory(c)
	if err != nil {
		return err.Error()
	}
	value, err := memory.Get(ctx, scope, stagemem.ValueName("word"))
	if err != nil {
		return err.Error()
	}
	return string(value)
}

// remember writes into the stage memory.
func (r *raw) remember(c *rawCommand) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	memory, scope, err := r.memory(c)
	if err != nil {
		return err
	}
	return memory.Put(ctx, scope, stagemem.ValueName("word"), []byte("a word"))
}

// hasBucket reports whether the bucket of the stage memory exists.
func (r *raw) hasBucket() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := r.js.KeyValue(ctx, "keb_stage")
	return err == nil
}

// hasMarker reports whether a replica has the marker of the stage attempt.
func (r *raw) hasMarker(c *rawCommand) bool {
	marker := fmt.Sprintf("$JS.API.DIRECT.GET.KV_keb_stage.$KV.keb_stage.%s.%s.%d.=", c.Operation.ID, c.Stage, c.StageAttempt)
	answer, err := r.nc.Request(marker, nil, 5*time.Second)
	return err == nil && answer.Header.Get("Status") == ""
}

func (r *raw) memory(c *rawCommand) (*stagemem.Memory, stagemem.Scope, error) {
	scope := stagemem.Scope{OperationID: c.Operation.ID, Stage: c.Stage, StageAttempt: c.StageAttempt}
	keys, err := seal.ParseKeyring(r.env.StageKeys)
	if err != nil {
		return nil, scope, err
	}
	return stagemem.NewGuest(r.js, keys), scope, nil
}

func value(m jetstream.Msg, name string) string {
	if v := m.Headers()[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}
