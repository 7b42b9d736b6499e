package event

import (
	"strconv"
	"strings"
	"time"
)

// Stream names a JetStream stream of the contract.
type Stream string

// Streams of the contract.
const (
	StreamRequests Stream = "KEB_REQUESTS"
	StreamCommands Stream = "KEB_COMMANDS"
	StreamResults  Stream = "KEB_RESULTS"
	StreamFacts    Stream = "KEB_FACTS"
	StreamSignals  Stream = "KEB_SIGNALS"
	StreamDead     Stream = "KEB_DEAD"
)

// StageBucket is the key-value bucket of the stage memory. It is stored only in memory.
const StageBucket = "keb_stage"

// StageMemoryTTL is the maximum lifetime of a value in the stage memory. It is the longest operation timeout.
const StageMemoryTTL = 24 * time.Hour

// DuplicateWindow is how long a stream drops messages with the same Nats-Msg-Id, except for results. It only saves work: the cursor in
// Postgres decides which result counts.
const DuplicateWindow = 30 * time.Second

// StreamSpec is the configuration of a stream.
type StreamSpec struct {
	Name     Stream
	Subjects []string
	// WorkQueue streams delete a message when it is acknowledged, and reject new messages when they are full, so that the publisher
	// retries. Other streams delete the oldest message.
	WorkQueue bool
	// MaxAge is the maximum age of a message; 0 means no limit.
	MaxAge time.Duration
	// MaxBytes limits the size of the stream, unless an operator has set another limit.
	MaxBytes int64
	// Expiring streams delete a message after the time in its header Nats-TTL.
	Expiring bool
	// MaxPerSubject limits the number of messages on one subject. The oldest are deleted first; 0 means no limit.
	MaxPerSubject int64
	// Duplicates is how long messages with the same Nats-Msg-Id are dropped.
	Duplicates time.Duration
}

// resultsWindow is the DuplicateWindow of results and signals, the shortest that the server allows. The server drops messages by ID, whatever their
// publisher. A worker could guess the IDs of another worker's results, and use them to have those results dropped.
const resultsWindow = 100 * time.Millisecond

// maxDead limits the dead letters of one stream. A worker can produce any number of them.
const maxDead = 10_000

// FactsKept is how long a reader of facts may be unavailable without missing a fact.
const FactsKept = 7 * 24 * time.Hour

// CommandsKept is how long a command waits for an unavailable worker. By then the operation has reached its time limit.
const CommandsKept = 2 * 24 * time.Hour

// The limits of the streams fit into the 7 GiB that a KEB server has for all of them (max_file_store).
const (
	maxRequestBytes = 256 << 20
	maxCommandBytes = 1 << 30
	maxResultBytes  = 1 << 30
	maxFactBytes    = 4 << 30
	maxDeadBytes    = 256 << 20
	maxSignalBytes  = 256 << 20
)

// StageMemoryBytes limits the stage memory of all operations, unless an operator has set another limit. It fits into the 256 MB that a KEB
// server has for streams in memory (max_memory_store).
const StageMemoryBytes = 192 << 20

// Streams returns the streams of the contract. All are stored in files.
func Streams() []StreamSpec {
	return []StreamSpec{
		{Name: StreamRequests, Subjects: []string{"keb.request.*"}, WorkQueue: true, MaxBytes: maxRequestBytes, Duplicates: DuplicateWindow},
		{
			Name: StreamCommands, Subjects: []string{"keb.command.*.*"}, WorkQueue: true, MaxAge: CommandsKept, MaxBytes: maxCommandBytes, Expiring: true,
			Duplicates: DuplicateWindow,
		},
		{Name: StreamResults, Subjects: []string{"keb.result.*.*"}, WorkQueue: true, MaxBytes: maxResultBytes, Duplicates: resultsWindow},
		{Name: StreamFacts, Subjects: []string{"keb.fact.*.*"}, MaxAge: FactsKept, MaxBytes: maxFactBytes, Duplicates: DuplicateWindow},
		{Name: StreamSignals, Subjects: []string{"keb.signal.>"}, WorkQueue: true, MaxBytes: maxSignalBytes, Duplicates: resultsWindow},
		{
			Name: StreamDead, Subjects: []string{"keb.dead.*"}, MaxAge: 30 * 24 * time.Hour, MaxPerSubject: maxDead, MaxBytes: maxDeadBytes,
			Duplicates: DuplicateWindow,
		},
	}
}

// ConsumerSpec is the configuration of a durable pull consumer.
type ConsumerSpec struct {
	Stream Stream
	// Name is the durable name.
	Name string
	// Filter is a subject filter; empty matches every subject of the stream.
	Filter string
	// Filters replaces Filter by several filters that do not overlap.
	Filters []string
	// Since is the time from which a new consumer gets messages; zero means all that the stream has.
	Since time.Time
	// AckWait is how long the server waits for an acknowledgement or a progress message before it redelivers.
	AckWait time.Duration
	// MaxAckPending limits the number of messages that are delivered and not acknowledged.
	MaxAckPending int
	// Ranked reports whether the processes that share the consumer are ranked: one process receives all messages while it keeps up, and the
	// next receives the rest. Batches stay large with any number of processes.
	Ranked bool
}

const (
	// ackWait is also the delay before another process takes over the work of a frozen one, and of a killed worker. Longer work must report
	// progress, see ConsumerSpec.ProgressEvery: a step that is executed twice may act twice.
	ackWait = 5 * time.Second

	maxAckPending = 20_000
)

// ProgressEvery is how often a process reports that it works on a message. Four reports may be late or lost before the server redelivers the
// message.
func (s ConsumerSpec) ProgressEvery() time.Duration { return s.AckWait / 5 }

// RequestsConsumer is the consumer that the orchestrators share for operation requests.
func RequestsConsumer() ConsumerSpec {
	return ConsumerSpec{Stream: StreamRequests, Name: "orchestrator", AckWait: ackWait, MaxAckPending: maxAckPending, Ranked: true}
}

// ResultsConsumer is the consumer that the orchestrators share for step results.
func ResultsConsumer() ConsumerSpec {
	return ConsumerSpec{Stream: StreamResults, Name: "orchestrator", AckWait: ackWait, MaxAckPending: maxAckPending, Ranked: true}
}

// SignalsConsumer is the consumer that the orchestrators share for events from outside.
func SignalsConsumer() ConsumerSpec {
	return ConsumerSpec{Stream: StreamSignals, Name: "orchestrator", AckWait: ackWait, MaxAckPending: maxAckPending, Ranked: true}
}

// CommandsConsumer is the consumer that the replicas of one worker share.
func CommandsConsumer(worker string) ConsumerSpec {
	return ConsumerSpec{
		Stream: StreamCommands, Name: worker, Filter: "keb.command." + worker + ".*",
		AckWait: ackWait, MaxAckPending: maxAckPending,
	}
}

// Ramped returns the name that replaces the name of a worker in the subjects of commands for its ramped replicas, and in their consumer:
// CommandsConsumer(Ramped(worker)). No worker can have it, because names of workers have no underscore.
func Ramped(worker string) string { return worker + "_ramped" }

// FactsConsumer is the consumer of one reader of facts. Each reader has a unique name.
func FactsConsumer(reader string) ConsumerSpec {
	return ConsumerSpec{Stream: StreamFacts, Name: reader, AckWait: ackWait, MaxAckPending: maxAckPending}
}

// WebhooksConsumer is the consumer that the orchestrators share for the facts that are sent to webhooks.
func WebhooksConsumer(subjects []string, since time.Time) ConsumerSpec {
	return ConsumerSpec{
		Stream: StreamFacts, Name: "webhooks", Filters: subjects, Since: since, AckWait: ackWait, MaxAckPending: maxAckPending, Ranked: true,
	}
}

// RequestSubject returns the subject of requests for operations of a type.
func RequestSubject(t OperationType) string { return "keb.request." + string(t) }

// CommandSubject returns the subject of commands for a step.
func CommandSubject(worker, step string) string { return "keb.command." + worker + "." + step }

// ProbeSubject returns the subject on which the orchestrator checks whether the bus stores messages. No worker can have this name.
func ProbeSubject() string { return CommandSubject(UserOrchestrator, "probe") }

// ResultSubject returns the subject of the results of a step.
func ResultSubject(worker, step string) string { return "keb.result." + worker + "." + step }

// WorkerOfResult returns the worker in a result subject; empty for any other subject.
func WorkerOfResult(subject string) string {
	rest, ok := strings.CutPrefix(subject, "keb.result.")
	if !ok {
		return ""
	}
	worker, _, _ := strings.Cut(rest, ".")
	return worker
}

// FactSubject returns the subject of facts of a type about operations of a type, for example "keb.fact.provision.step-finished".
func FactSubject(o OperationType, t Type) string { return "keb.fact." + string(o) + "." + t.kind() }

// NoticeOperations is the subject on which orchestrators notify each other, outside of any stream, of the operations that they just
// changed. The payload is an OperationsRequest. A notice may be lost, so listeners also poll the database.
const NoticeOperations = "keb.notice.operations"

// CancelSubject returns the subject on which the orchestrator notifies all replicas of a worker, outside of any stream, that a command of
// theirs should end early: "keb.worker.<worker>.cancel". The payload is a CancelNotice. A notice may be lost; the command then ends at its
// ExecuteBefore.
func CancelSubject(worker string) string { return "keb.worker." + worker + ".cancel" }

// ProgressSubject returns the subject on which a worker reports, outside of any stream, how far a running step is:
// "keb.worker.<worker>.progress". The payload is a ProgressNotice. A notice may be lost; only this worker may publish on it.
func ProgressSubject(worker string) string { return "keb.worker." + worker + ".progress" }

// WorkerOfProgress returns the worker in a ProgressSubject.
func WorkerOfProgress(subject string) string {
	return strings.TrimSuffix(strings.TrimPrefix(subject, "keb.worker."), ".progress")
}

// NoticeHolds is the subject on which orchestrators notify each other, outside of any stream, that the holds or the ramps have changed. It has no
// payload. A notice may be lost, so listeners also poll the database.
const NoticeHolds = "keb.notice.holds"

// NoticeLimits is the same for the limits.
const NoticeLimits = "keb.notice.limits"

// NoticeOverlays is the same for the applied overlays.
const NoticeOverlays = "keb.notice.overlays"

// DeadSubject returns the subject of unreadable messages of a stream.
func DeadSubject(s Stream) string { return "keb.dead." + string(s) }

// CommandID returns the event ID of a command: "<operation id>/<cursor>".
func CommandID(operationID string, cursor int64) string {
	return operationID + "/" + strconv.FormatInt(cursor, 10)
}

// DispatchID returns the Nats-Msg-Id of a command, which is also the event ID and Nats-Msg-Id of its result: "<operation
// id>/<cursor>/<dispatch>".
func DispatchID(operationID string, cursor int64, dispatch int) string {
	return CommandID(operationID, cursor) + "/" + strconv.Itoa(dispatch)
}

// CommandOf returns the event ID of the command with a DispatchID, or of its result.
func CommandOf(dispatchID string) string {
	return dispatchID[:max(strings.LastIndexByte(dispatchID, '/'), 0)]
}

// Sources of events (the CloudEvents "source" attribute). The source of a worker is WorkerSource(name).
const (
	SourceBroker       = "/keb/broker"
	SourceOrchestrator = "/keb/orchestrator"
)

// WorkerSource returns the "source" attribute of the results of a worker.
func WorkerSource(worker string) string { return "/keb/worker/" + worker }
