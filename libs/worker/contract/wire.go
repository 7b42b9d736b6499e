package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
)

// Kinds of acknowledgements in the protocol of JetStream.
const (
	ack        = "+ACK"
	nak        = "-NAK"
	inProgress = "+WPI"
	term       = "+TERM"
)

// wire records the messages between the worker and the bus, in the order in which they passed the door.
type wire struct {
	acks string

	pulse *pulse

	mu      sync.Mutex
	changed chan struct{}
	clock   int
	// deliveries has the subject of the acknowledgement as key, orders the operation.
	deliveries map[string]*delivery
	orders     map[string]*order
	results    []*result
	waiting    map[string]*result // results without an answer of the stream, by the subject of the answer
	dead       int
	// refused lists the permission errors that the server sent to the worker.
	refused []string
	// extensions counts the granted requests for more time.
	extensions int
	// secrets must not occur in messages of the worker; leaks lists those that did.
	secrets map[string]string
	leaks   map[string]bool
	// loseAcks drops all acknowledgements.
	loseAcks bool
	held     map[string]*delivery // delivered, and no delivery of the same message is settled yet
	mostHeld int
	// heard is the pulse time of the last delivery or progress report of a message.
	heard map[uint64]time.Duration
}

// order is a command that the kit has published, with its deliveries and results. wire.mu protects all fields that change later.
type order struct {
	command  event.StepExecute
	subject  string
	trace    string
	outcomes []*result
	given    []*delivery
	// ids lists the dispatches of the sent messages, whose number is sent.
	ids  map[string]bool
	sent int
	// quiet allows an acknowledgement without a result.
	quiet bool
	// extended is the time limit that the worker has asked for; zero if it has not.
	extended time.Time
	// remembers means that the worker has used the stage memory.
	remembers bool
	// lags makes a replica of the stage memory lag, from the first read until lagEnd in pulse time. stale counts the reads meanwhile.
	lags   bool
	lagEnd time.Duration
	stale  int
}

// limit is the time limit of the command. The caller holds the lock.
func (o *order) limit() time.Time {
	if o.extended.After(o.command.ExecuteBefore) {
		return o.extended
	}
	return o.command.ExecuteBefore
}

// extend gives the worker more time for a command that it has, as the orchestrator does.
func (w *wire) extend(r event.ExtendRequest, now time.Time) (limit time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.orders[r.OperationID]
	switch {
	case o == nil || o.command.Cursor != r.Cursor:
		return limit, errors.New("there is no such command")
	case !now.Before(o.limit().Add(lateGrace)):
		return limit, errors.New("the time limit of the command has passed")
	}
	for _, d := range w.held {
		if d.order == o {
			o.extended = now.Add(time.Duration(r.Seconds * float64(time.Second)))
			w.extensions++
			return o.limit(), nil
		}
	}
	return limit, errors.New("the worker does not execute the command")
}

// delivery is one delivery of a command to the worker.
type delivery struct {
	order *order
	id    string // of the dispatch
	seq   uint64 // of the message in the stream
	count uint64 // of its deliveries
	at    time.Time
	tick  int
	// silent is the pulse time between the last sign of the worker about the message and this redelivery.
	silent time.Duration
	// told counts the progress reports, lastTold is the time of the last one; settled is the final answer: ack, nak or term.
	told     int
	lastTold time.Time
	late     int           // number of progress reports long after the executeBefore of the command
	longest  time.Duration // the longest silence
	settled  string
	settle   int
	when     time.Time
	lost     bool // the acknowledgement did not reach the stream
	stray    bool // an earlier delivery was acknowledged when this one was on its way
}

// result is a message that the worker published on a subject for results.
type result struct {
	at      time.Time
	tick    int
	subject string
	header  nats.Header
	data    []byte
	reply   string
	order   *order // nil if it is for no order

	readable bool
	body     struct {
		event.Result
		RetryAfter   float64             `json:"retryAfter"`
		NotCompleted bool                `json:"notCompleted"`
		Error        *event.Error        `json:"error"`
		Event        *event.AwaitedEvent `json:"event"`
	}
	kind event.Type

	// stored is the time of the stream's answer; refused is its error.
	stored    int
	refused   string
	duplicate bool
}

// lateGrace is the time after the executeBefore of a command in which a progress report is not late.
const lateGrace = time.Second

func newWire(worker string, p *pulse) *wire {
	return &wire{
		pulse: p, heard: map[uint64]time.Duration{},
		acks:    "$JS.ACK." + string(event.StreamCommands) + "." + worker + ".",
		changed: make(chan struct{}), deliveries: map[string]*delivery{}, orders: map[string]*order{}, waiting: map[string]*result{},
		held: map[string]*delivery{}, leaks: map[string]bool{},
	}
}

// see is the tap function of the door.
func (w *wire) see(fromWorker bool, f *frame) (pass bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	pass = true
	switch {
	case fromWorker:
		pass = w.seeSent(f, now)
	case f.op == "-ERR":
		if strings.Contains(strings.ToLower(f.text()), "permissions violation") {
			w.refused = append(w.refused, strings.Trim(strings.TrimPrefix(f.text(), "-ERR"), " '"))
		}
	case f.op != "MSG" && f.op != "HMSG":
		return true
	case strings.HasPrefix(f.reply, w.acks):
		w.seeDelivery(f, now)
	default:
		r := w.waiting[f.subject]
		if r == nil {
			return true
		}
		delete(w.waiting, f.subject)
		w.seeStored(r, f)
	}
	close(w.changed)
	w.changed = make(chan struct{})
	return pass
}

// seeSent records a frame of the worker. The password in CONNECT is not a leak.
func (w *wire) seeSent(f *frame, now time.Time) (pass bool) {
	if f.op != "PUB" && f.op != "HPUB" {
		return true
	}
	for value, what := range w.secrets {
		if bytes.Contains(f.raw, []byte(value)) {
			w.leaks[what+" went over the bus in the clear, "+place(f.subject)] = true
		}
	}
	switch {
	case strings.HasPrefix(f.subject, w.acks):
		w.seeAck(f, now)
		return !w.loseAcks
	case strings.HasPrefix(f.subject, "keb.result."):
		w.seeResult(f, now)
	case f.subject == event.DeadSubject(event.StreamCommands):
		w.dead++
	case strings.Contains(f.subject, event.StageBucket):
		w.seeMemory(f)
	}
	return true
}

// noOperation takes the place of an operation id in reads that a replica answers which lags.
const noOperation = "00000000-0000-0000-0000-000000000000"

// seeMemory records a use of the stage memory. If a replica lags, a read is forwarded with another operation id, so that the server
// answers that there is no value.
func (w *wire) seeMemory(f *frame) {
	text := f.subject
	if strings.HasPrefix(text, "$JS.API.") {
		text += string(f.data)
	}
	_, key, _ := strings.Cut(text, "$KV."+event.StageBucket+".")
	operation, _, _ := strings.Cut(key, ".")
	o := w.orders[operation]
	if o == nil {
		return
	}
	o.remembers = true
	if !o.lags || !strings.HasPrefix(f.subject, "$JS.API.DIRECT.GET.") {
		return
	}
	now := w.pulse.now()
	if o.stale == 0 {
		o.lagEnd = now + replicaLag
	}
	if now < o.lagEnd {
		o.stale++
		f.raw = bytes.ReplaceAll(f.raw, []byte(operation), []byte(noOperation))
	}
}

// place returns the destination of a message without ids.
func place(subject string) string {
	if strings.HasPrefix(subject, "$KV.") {
		return "into the stage memory"
	}
	if strings.HasPrefix(subject, "_INBOX") || strings.HasPrefix(subject, "$") {
		return "in a request or an answer"
	}
	return "on " + subject
}

func (w *wire) seeDelivery(m *frame, now time.Time) {
	d := &delivery{at: now, tick: w.clock, lastTold: now, count: 1, id: m.header.Get(nats.MsgIdHdr)}
	// $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence in the stream>...
	if words := strings.Split(m.reply, "."); len(words) > 5 {
		d.count, _ = strconv.ParseUint(words[4], 10, 64)
		d.seq, _ = strconv.ParseUint(words[5], 10, 64)
	}
	if operation, _, ok := strings.Cut(d.id, "/"); ok {
		d.order = w.orders[operation]
	}
	// The suffix "/again" is for the stream only: for the worker it is the same dispatch.
	d.id = strings.TrimSuffix(d.id, again)
	if d.order != nil {
		d.order.given = append(d.order.given, d)
	}
	if before, ok := w.heard[d.seq]; ok && d.count > 1 {
		d.silent = w.pulse.now() - before
	}
	w.heard[d.seq] = w.pulse.now()
	w.deliveries[m.reply] = d
	w.held[m.reply] = d
	w.mostHeld = max(w.mostHeld, w.holds())
}

// holds returns the number of unsettled messages, regardless of redeliveries. The caller holds the lock.
func (w *wire) holds() int {
	messages := make(map[uint64]bool, len(w.held))
	for _, d := range w.held {
		messages[d.seq] = true
	}
	return len(messages)
}

func (w *wire) seeAck(m *frame, now time.Time) {
	d := w.deliveries[m.subject]
	if d == nil {
		return
	}
	kind, _, _ := strings.Cut(string(m.data), " ")
	if kind == "" {
		kind = ack // an empty message acknowledges, too
	}
	if kind == inProgress {
		d.longest = max(d.longest, now.Sub(d.lastTold))
		d.told, d.lastTold = d.told+1, now
		if d.order != nil && now.After(d.order.limit().Add(lateGrace)) {
			d.late++
		}
		w.heard[d.seq] = w.pulse.now()
		return
	}
	if d.settled == "" {
		d.longest = max(d.longest, now.Sub(d.lastTold))
		d.settled, d.settle, d.when, d.lost = kind, w.clock, now, w.loseAcks
	}
	delete(w.held, m.subject)
	if w.loseAcks {
		return
	}
	// The server applies the answer to one delivery of a message to all of its deliveries so far.
	for subject, other := range w.held {
		if other.seq == d.seq {
			delete(w.held, subject)
		}
	}
}

func (w *wire) seeResult(m *frame, now time.Time) {
	r := &result{at: now, tick: w.clock, subject: m.subject, header: m.header, data: m.data, reply: m.reply}
	r.readable = json.Unmarshal(m.data, &r.body) == nil
	r.kind = event.Type(header(m.header, "ce-type"))
	w.results = append(w.results, r)
	if m.reply != "" {
		w.waiting[m.reply] = r
	}
	// The operation id is sufficient here: the checks report problems of the other fields.
	id, _, _ := strings.Cut(header(m.header, "ce-id"), "/")
	msgID, _, _ := strings.Cut(m.header.Get(nats.MsgIdHdr), "/")
	for _, name := range []string{r.body.OperationID, id, header(m.header, "ce-subject"), msgID} {
		if r.order = w.orders[name]; r.order != nil {
			break
		}
	}
	if r.order == nil {
		return
	}
	r.order.outcomes = append(r.order.outcomes, r)
}

func (w *wire) seeStored(r *result, m *frame) {
	if m.header.Get("Status") != "" {
		r.refused = "no stream accepts it: " + m.header.Get("Status")
		return
	}
	var answer struct {
		Error     *struct{ Description string } `json:"error"`
		Duplicate bool                          `json:"duplicate"`
	}
	if err := json.Unmarshal(m.data, &answer); err != nil {
		r.refused = "the answer of the stream is not readable"
		return
	}
	if answer.Error != nil {
		r.refused = answer.Error.Description
		return
	}
	r.stored, r.duplicate = w.clock, answer.Duplicate
}

// header returns an attribute; its name is case-insensitive.
func header(h nats.Header, name string) string {
	if v := h.Get(name); v != "" {
		return v
	}
	for key, values := range h {
		if strings.EqualFold(key, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// await waits until ok returns true. It returns false if the pulse time is over first. ok is called with the lock held.
func (w *wire) await(ctx context.Context, within time.Duration, ok func() bool) bool {
	end := w.pulse.now() + within
	for ctx.Err() == nil {
		w.mu.Lock()
		good, changed := ok(), w.changed
		w.mu.Unlock()
		left := end - w.pulse.now()
		if good || left <= 0 {
			return good
		}
		w.pulse.wait(ctx, left, changed)
	}
	return false
}

// look calls f with the lock held.
func (w *wire) look(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// forget drops the unsettled messages, because the worker has ended.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.held)
}

// good returns the first answer to an order that the stream has accepted. The caller holds the lock.
func (o *order) good() *result {
	for _, r := range o.outcomes {
		if r.stored > 0 {
			return r
		}
	}
	return nil
}

// taken reports whether an order was answered or removed from the stream. The caller holds the lock.
func (o *order) taken() bool {
	return len(o.outcomes) > 0 || slices.ContainsFunc(o.given, func(d *delivery) bool { return d.settled == ack || d.settled == term })
}

// left reports whether the worker returned an order, or did not settle it before its redelivery. The caller holds the lock.
func (o *order) left() bool {
	return len(o.given) > 1 || len(o.given) > 0 && o.given[0].settled == nak
}

// early reports whether an order was acknowledged before the stream had its result. The caller holds the lock.
func (o *order) early() bool {
	good := o.good()
	return slices.ContainsFunc(o.given, func(d *delivery) bool { return d.settled == ack && (good == nil || d.settle < good.stored) })
}

// answered reports whether the stream has stored a result of an order and all messages of the order are acknowledged. The caller
// holds the lock.
func (o *order) answered() bool { return o.good() != nil && o.acknowledged() }

// crossed returns the deliveries of an order that came after an acknowledgement of their message, and were not settled. The caller holds
// the lock.
func (o *order) crossed() (found []*delivery) {
	acked := map[uint64]bool{}
	for _, d := range o.given {
		if acked[d.seq] && d.settled == "" && !d.stray {
			found = append(found, d)
		}
		acked[d.seq] = acked[d.seq] || d.settled == ack && !d.lost
	}
	return found
}

// acknowledged reports whether each message of an order was acknowledged after its last delivery, through any of its deliveries: a
// worker that still executes a redelivered command acknowledges the delivery that it executes. The caller holds the lock.
func (o *order) acknowledged() bool {
	last, since := map[uint64]int{}, map[uint64]int{}
	for _, d := range o.given {
		if !d.stray {
			last[d.seq] = d.tick
		}
		if d.settled == ack && !d.lost {
			since[d.seq] = max(since[d.seq], d.settle)
		}
	}
	for seq, tick := range last {
		if since[seq] < tick {
			return false
		}
	}
	return len(last) == o.sent
}
