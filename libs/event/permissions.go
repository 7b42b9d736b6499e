package event

import (
	"slices"
	"strings"
	"time"
)

// User contains the permissions of a user of the bus. The server rejects everything that is not listed.
type User struct {
	// Name is the user name, see UserBroker, UserOrchestrator, UserMonitor and WorkerUserName.
	Name string
	// Publish and Subscribe are sorted subject filters. JetStream is also used by publishing: $JS.API.… sends a request, $JS.ACK.…
	// acknowledges.
	Publish, Subscribe []string
	// Answers allows the user to answer each request once, within AnswerTime, although it may not publish to the client's inbox.
	Answers bool
}

// AnswerTime is how long a request can be answered. It is longer than any client waits.
const AnswerTime = 2 * time.Minute

// Users other than those of the workers.
const (
	UserBroker       = "broker"
	UserOrchestrator = "orchestrator"
	// UserMonitor reads streams, consumers, workers, facts and dead letters, and changes nothing.
	UserMonitor = "monitor"
	// UserSignal publishes events for operations that wait for them, and may do nothing else.
	UserSignal = "signal"
)

// workerUserPrefix is the prefix of the names of the workers' users.
const workerUserPrefix = "worker-"

// WorkerUserName returns the user of a worker: "worker-<name>".
func WorkerUserName(worker string) string { return workerUserPrefix + worker }

// PasswordVariable returns the environment variable with the password of a user, where several passwords are needed:
// KEB_NATS_PASSWORD_WORKER_AVS for worker-avs.
func PasswordVariable(user string) string {
	return "KEB_NATS_PASSWORD_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_"))
}

// InboxPrefix returns the prefix of the reply subjects of a user. Only this user may listen on them.
func InboxPrefix(user string) string { return "_INBOX_" + user }

// Subjects of the stage bucket.
const (
	stageStream   = "KV_" + StageBucket
	stageValues   = "$KV." + StageBucket + ".>"
	stageReadMany = "$JS.API.DIRECT.GET." + stageStream
	stageReadOne  = stageReadMany + "." + stageValues
	stageInfo     = "$JS.API.STREAM.INFO." + stageStream
)

// Users returns all users of a bus with these workers, sorted by name. The broker, which is also a worker, and the orchestrator have users
// of their own; they are ignored as names of workers.
func Users(workers ...string) []User {
	users := []User{brokerUser(), orchestratorUser(), monitorUser(), user(UserSignal, false, []string{SignalSubject(">")}, nil)}
	for _, name := range workers {
		if name != UserBroker && name != UserOrchestrator {
			users = append(users, WorkerUser(name))
		}
	}
	slices.SortFunc(users, func(a, b User) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(users, func(a, b User) bool { return a.Name == b.Name })
}

// WorkerUser returns the user of a worker. It may receive its own commands, publish its own results, use the stage memory, and answer
// requests under its own name. Under its own name, it may claim credentials and store values with the broker, and ask the orchestrator
// about its commands and for more time. It may not create, change or delete a stream, a consumer or a bucket.
func WorkerUser(name string) User {
	return user(
		WorkerUserName(name), true,
		slices.Concat(
			consumeSubjects(CommandsConsumer(name)),
			consumeSubjects(CommandsConsumer(Ramped(name))),
			[]string{
				ResultSubject(name, "*"), AskCredentialsAs(name), AskKeepAs(name), AskKeptAs(name), AskCurrentAs(name), AskExtendAs(name), ProgressSubject(name),
				stageValues, stageReadMany, stageReadOne, stageInfo,
			},
		),
		servedSubjects(name),
	)
}

// brokerUser returns the user of the broker, which publishes requests, reads facts, and is a worker without stage memory.
func brokerUser() User {
	return user(
		UserBroker, true,
		slices.Concat(
			consumeSubjects(CommandsConsumer(UserBroker)),
			consumeSubjects(FactsConsumer(UserBroker)),
			[]string{"keb.request.*", ResultSubject(UserBroker, "*"), "keb.ask.orchestrator.*", AskCurrentAs(UserBroker), AskExtendAs(UserBroker), ProgressSubject(UserBroker), "keb.ask.runtime.*"},
		),
		append(servedSubjects(UserBroker), AskCredentialsAs("*"), AskKeepAs("*"), AskKeptAs("*")),
	)
}

// orchestratorUser returns the user of the orchestrator. It creates the streams, all consumers and the bucket. It does not consume the
// messages of other consumers, but reads which commands and results the streams hold. It only purges the bucket and the commands of removed
// ramps. It reads and deletes dead letters, and publishes them again on their subjects.
func orchestratorUser() User {
	publish := slices.Concat(
		consumeSubjects(RequestsConsumer()),
		consumeSubjects(ResultsConsumer()),
		consumeSubjects(SignalsConsumer()),
		consumeSubjects(WebhooksConsumer(nil, time.Time{})),
		[]string{
			"keb.command.*.*", "keb.fact.*.*", NoticeOperations, NoticeHolds, NoticeLimits, NoticeOverlays, CancelSubject("*"), AskInstances, AskInstance, AskFind, AskUpgrade, "keb.ask.hyperscaler.*", "keb.ask.spc.*", "$SRV.INFO", "$SRV.STATS",
			"$JS.API.INFO", "$JS.API.STREAM.PURGE." + stageStream, "$JS.API.STREAM.PURGE." + string(StreamCommands),
			"$JS.API.STREAM.MSG.GET." + string(StreamCommands), "$JS.API.STREAM.MSG.GET." + string(StreamResults),
			"$JS.API.STREAM.MSG.GET." + string(StreamDead), "$JS.API.STREAM.MSG.DELETE." + string(StreamDead),
			"$JS.API.CONSUMER.MSG.NEXT." + string(StreamDead) + ".*", "keb.request.*", "keb.result.*.*", SignalSubject(">"),
		},
	)
	for _, stream := range append(streamNames(), stageStream) {
		for _, verb := range []string{"INFO", "CREATE", "UPDATE"} {
			publish = append(publish, "$JS.API.STREAM."+verb+"."+stream)
		}
	}
	for _, stream := range streamNames() {
		publish = append(publish, "$JS.API.CONSUMER.LIST."+stream, "$JS.API.CONSUMER.NAMES."+stream)
		for _, verb := range []string{"INFO", "DELETE"} {
			publish = append(publish, "$JS.API.CONSUMER."+verb+"."+stream+".*")
		}
		// The filter of a consumer follows its name.
		publish = append(publish, "$JS.API.CONSUMER.CREATE."+stream+".>")
	}
	return user(UserOrchestrator, true, publish, []string{
		"keb.ask.orchestrator.*", AskCurrentAs("*"), AskExtendAs("*"), "keb.fact.*.*", NoticeOperations, NoticeHolds, NoticeLimits, NoticeOverlays, ProgressSubject("*"),
		"$JS.EVENT.ADVISORY.STREAM.DELETED.*", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.*.*",
	})
}

func monitorUser() User {
	publish := []string{
		"$SRV.PING.>", "$SRV.PING", "$SRV.INFO.>", "$SRV.INFO", "$SRV.STATS.>", "$SRV.STATS",
		"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET." + string(StreamDead),
	}
	for _, stream := range append(streamNames(), stageStream) {
		publish = append(publish, "$JS.API.STREAM.INFO."+stream, "$JS.API.CONSUMER.LIST."+stream, "$JS.API.CONSUMER.NAMES."+stream,
			"$JS.API.CONSUMER.INFO."+stream+".*")
	}
	return user(UserMonitor, false, publish, []string{"keb.fact.*.*"})
}

func user(name string, answers bool, publish, subscribe []string) User {
	subscribe = append(subscribe, InboxPrefix(name)+".>")
	slices.Sort(publish)
	slices.Sort(subscribe)
	return User{Name: name, Publish: slices.Compact(publish), Subscribe: slices.Compact(subscribe), Answers: answers}
}

// consumeSubjects returns the subjects needed to use an existing consumer: read its state, pull, acknowledge, and publish dead letters.
func consumeSubjects(c ConsumerSpec) []string {
	of := string(c.Stream) + "." + c.Name
	return []string{"$JS.API.CONSUMER.INFO." + of, "$JS.API.CONSUMER.MSG.NEXT." + of, "$JS.ACK." + of + ".>", DeadSubject(c.Stream)}
}

// servedSubjects returns the subjects on which a worker listens: its micro service, its ping, notices about its commands and its requests.
func servedSubjects(name string) []string {
	subjects := []string{"keb.worker." + name + ".ping", CancelSubject(name), "keb.ask." + name + ".*"}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		// The IDs of the replicas follow the name.
		of := "$SRV." + verb + ".keb-worker-" + name
		subjects = append(subjects, "$SRV."+verb, of, of+".*")
	}
	return subjects
}

func streamNames() []string {
	var names []string
	for _, s := range Streams() {
		names = append(names, string(s.Name))
	}
	return names
}
