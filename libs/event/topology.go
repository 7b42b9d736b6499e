package event

import (
	"strconv"
	"strings"
	"time"
)

// Stream names a JetStream stream of the contract.
type Stream string

// The streams.
const (
	StreamRequests Stream = "KEB_REQUESTS"
	StreamCommands Stream = "KEB_COMMANDS"
	StreamResults  Stream = "KEB_RESULTS"
	StreamFacts    Stream = "KEB_FACTS"
	StreamDead     Stream = "KEB_DEAD"
)

// StageBucket is the key-value bucket of the stage memory. It is kept in memory only.
const StageBucket = "keb_stage"

// StageMemoryTTL is how long a value lives in the stage memory at most: the longest operation timeout.
const StageMemoryTTL = 24 * time.Hour

// DuplicateWindow is how long a stream drops a second message with the same Nats-Msg-Id, but for results. It only saves work:
// the cursor in Postgres settles what counts.
const DuplicateWindow = 30 * time.Second

// StreamSpec says how a stream is configured.
type StreamSpec struct {
	Name     Stream
	Subjects []string
	// WorkQueue streams drop a message once it is acknowledged, and refuse new ones when they are full: the publisher tries again. The
	// others drop the oldest.
	WorkQueue bool
	// MaxAge is when a message goes in any case; 0 is never.
	MaxAge time.Duration
	// MaxBytes bounds the stream, unless an operator has set another bound.
	MaxBytes int64
	// Expiring streams take messages that go by themselves after the time in their header Nats-TTL.
	Expiring bool
	// MaxPerSubject bounds the messages of one subject, the oldest of which go first; 0 is no bound.
	MaxPerSubject int64
	// Duplicates is how long a second message with the same Nats-Msg-Id is dropped.
	Duplicates time.Duration
}

// resultsWindow is the DuplicateWindow of results, as short as the server allows. It drops by the message id alone, whoever has
// published it: a worker could use the ids of another's results, which can be guessed, and so have them dropped.
const resultsWindow = 100 * time.Millisecond

// maxDead bounds the dead letters of one stream: whoever may write results can make as many as it likes.
const maxDead = 10_000

// FactsKept is how long a reader of facts may be away without missing one.
const FactsKept = 7 * 24 * time.Hour

// CommandsKept is how long a command waits for a worker that does not come. By then the operation has reached its time limit.
const CommandsKept = 2 * 24 * time.Hour

// The bounds of the streams fit into the 7 GiB that a server of KEB has for all of them (max_file_store).
const (
	maxRequestBytes = 256 << 20
	maxCommandBytes = 1 << 30
	maxResultBytes  = 1 << 30
	maxFactBytes    = 4 << 30
	maxDeadBytes    = 256 << 20
)

// StageMemoryBytes bounds the stage memory of all operations, unless an operator has set another bound. It fits into the 256 MB that a
// server of KEB has for streams in memory (max_memory_store).
const StageMemoryBytes = 192 << 20

// Streams lists the streams of the contract. All are kept in files.
func Streams() []StreamSpec {
	return []StreamSpec{
		{Name: StreamRequests, Subjects: []string{"keb.request.*"}, WorkQueue: true, MaxBytes: maxRequestBytes, Duplicates: DuplicateWindow},
		{
			Name: StreamCommands, Subjects: []string{"keb.command.*.*"}, WorkQueue: true, MaxAge: CommandsKept, MaxBytes: maxCommandBytes, Expiring: true,
			Duplicates: DuplicateWindow,
		},
		{Name: StreamResults, Subjects: []string{"keb.result.*.*"}, WorkQueue: true, MaxBytes: maxResultBytes, Duplicates: resultsWindow},
		{Name: StreamFacts, Subjects: []string{"keb.fact.*.*"}, MaxAge: FactsKept, MaxBytes: maxFactBytes, Duplicates: DuplicateWindow},
		{
			Name: StreamDead, Subjects: []string{"keb.dead.*"}, MaxAge: 30 * 24 * time.Hour, MaxPerSubject: maxDead, MaxBytes: maxDeadBytes,
			Duplicates: DuplicateWindow,
		},
	}
}

// ConsumerSpec says how a durable pull consumer is configured.
type ConsumerSpec struct {
	Stream Stream
	// Name is the durable name.
	Name string
	// Filter is a subject filter; empty means every subject of the stream.
	Filter string
	// AckWait is how long the server waits for an acknowledgement or a progress message before it delivers again.
	AckWait time.Duration
	// MaxAckPending bounds what is delivered and not acknowledged.
	MaxAckPending int
	// Ranked tells that of the processes that share the consumer one gets all messages for as long as it keeps up, and the others
	// what it leaves: batches stay large however many processes there are.
	Ranked bool
}

const (
	// ackWait is also how long the work of a killed process stands still. Whoever works longer sends progress.
	ackWait       = 10 * time.Second
	maxAckPending = 20_000
)

// RequestsConsumer is the consumer that the orchestrators share for operation requests.
func RequestsConsumer() ConsumerSpec {
	return ConsumerSpec{Stream: StreamRequests, Name: "orchestrator", AckWait: ackWait, MaxAckPending: maxAckPending, Ranked: true}
}

// ResultsConsumer is the consumer that the orchestrators share for step results.
func ResultsConsumer() ConsumerSpec {
	return ConsumerSpec{Stream: StreamResults, Name: "orchestrator", AckWait: ackWait, MaxAckPending: maxAckPending, Ranked: true}
}

// CommandsConsumer is the consumer that the replicas of one worker share.
func CommandsConsumer(worker string) ConsumerSpec {
	return ConsumerSpec{
		Stream: StreamCommands, Name: worker, Filter: "keb.command." + worker + ".*",
		AckWait: ackWait, MaxAckPending: maxAckPending,
	}
}

// FactsConsumer is the consumer of one reader of facts; every reader has its own name.
func FactsConsumer(reader string) ConsumerSpec {
	return ConsumerSpec{Stream: StreamFacts, Name: reader, AckWait: ackWait, MaxAckPending: maxAckPending}
}

// RequestSubject is where requests for operations of a type are published.
func RequestSubject(t OperationType) string { return "keb.request." + string(t) }

// CommandSubject is where commands for a step are published.
func CommandSubject(worker, step string) string { return "keb.command." + worker + "." + step }

// ProbeSubject is where the orchestrator tries whether the bus stores messages. No worker can have this name.
func ProbeSubject() string { return CommandSubject(UserOrchestrator, "probe") }

// ResultSubject is where the results of a step are published.
func ResultSubject(worker, step string) string { return "keb.result." + worker + "." + step }

// WorkerOfResult is the worker in a subject of ResultSubject; empty for any other subject.
func WorkerOfResult(subject string) string {
	rest, ok := strings.CutPrefix(subject, "keb.result.")
	if !ok {
		return ""
	}
	worker, _, _ := strings.Cut(rest, ".")
	return worker
}

// FactSubject is where facts of a type about operations of a type are published, for example
// "keb.fact.provision.step-finished".
func FactSubject(o OperationType, t Type) string { return "keb.fact." + string(o) + "." + t.kind() }

// NoticeOperations is where orchestrators tell each other, outside of any stream, which operations they have just changed: an
// OperationsRequest. A notice may be lost; whoever listens also looks at the database from time to time.
const NoticeOperations = "keb.notice.operations"

// DeadSubject is where messages of a stream are published that nobody could read.
func DeadSubject(s Stream) string { return "keb.dead." + string(s) }

// CommandID is the event id of a command: "<operation id>/<cursor>".
func CommandID(operationID string, cursor int64) string {
	return operationID + "/" + strconv.FormatInt(cursor, 10)
}

// DispatchID is the Nats-Msg-Id of a command, and the event id and Nats-Msg-Id of its result:
// "<operation id>/<cursor>/<dispatch>".
func DispatchID(operationID string, cursor int64, dispatch int) string {
	return CommandID(operationID, cursor) + "/" + strconv.Itoa(dispatch)
}

// Sources of events (the CloudEvents "source" attribute). A worker's source is WorkerSource(name).
const (
	SourceBroker       = "/keb/broker"
	SourceOrchestrator = "/keb/orchestrator"
)

// WorkerSource is the "source" attribute of the results of a worker.
func WorkerSource(worker string) string { return "/keb/worker/" + worker }
