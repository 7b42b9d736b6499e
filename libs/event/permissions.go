package event

import (
	"slices"
	"strings"
	"time"
)

// User is what one user of the bus may do. What is not listed is refused by the server.
type User struct {
	// Name is what the process logs on with, see UserBroker, UserOrchestrator, UserMonitor and WorkerUserName.
	Name string
	// Publish and Subscribe are subject filters, sorted. JetStream is driven by publishing, too: $JS.API.… asks it, $JS.ACK.… acknowledges.
	Publish, Subscribe []string
	// Answers lets the user answer what it was asked, once each and within AnswerTime, although it may not publish to
	// the inbox of whoever asked.
	Answers bool
}

// AnswerTime is how long a question can be answered: longer than anybody waits.
const AnswerTime = 2 * time.Minute

// The users besides those of the workers.
const (
	UserBroker       = "broker"
	UserOrchestrator = "orchestrator"
	// UserMonitor looks at streams, consumers, workers, facts and dead letters, and changes nothing.
	UserMonitor = "monitor"
)

// workerUserPrefix is what the names of the workers' users begin with.
const workerUserPrefix = "worker-"

// WorkerUserName is the user of a worker: "worker-<name>".
func WorkerUserName(worker string) string { return workerUserPrefix + worker }

// PasswordVariable is the environment variable with the password of a user where several are needed: KEB_NATS_PASSWORD_WORKER_AVS for
// worker-avs.
func PasswordVariable(user string) string {
	return "KEB_NATS_PASSWORD_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_"))
}

// InboxPrefix is what the reply subjects of a user begin with. Nobody else may listen there.
func InboxPrefix(user string) string { return "_INBOX_" + user }

// The subjects of the stage bucket.
const (
	stageStream   = "KV_" + StageBucket
	stageValues   = "$KV." + StageBucket + ".>"
	stageReadMany = "$JS.API.DIRECT.GET." + stageStream
	stageReadOne  = stageReadMany + "." + stageValues
	stageInfo     = "$JS.API.STREAM.INFO." + stageStream
)

// Users are all users of a bus with these workers, in the order of their names. The broker, which is a worker, too, and the
// orchestrator have users of their own; as names of workers they are left out.
func Users(workers ...string) []User {
	users := []User{brokerUser(), orchestratorUser(), monitorUser()}
	for _, name := range workers {
		if name != UserBroker && name != UserOrchestrator {
			users = append(users, WorkerUser(name))
		}
	}
	slices.SortFunc(users, func(a, b User) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(users, func(a, b User) bool { return a.Name == b.Name })
}

// WorkerUser is the user of a worker: it takes its own commands, publishes its own results, uses the stage memory, answers
// questions under its own name, and under its own name claims credentials of the broker, has it keep values, and asks the
// orchestrator about its commands. It cannot make, change or delete a stream, a consumer or a bucket.
func WorkerUser(name string) User {
	return user(
		WorkerUserName(name), true,
		slices.Concat(
			consume(CommandsConsumer(name)),
			[]string{
				ResultSubject(name, "*"), AskCredentialsAs(name), AskKeepAs(name), AskKeptAs(name), AskCurrentAs(name),
				stageValues, stageReadMany, stageReadOne, stageInfo,
			},
		),
		served(name),
	)
}

// brokerUser publishes requests, reads facts, and is a worker without stage memory.
func brokerUser() User {
	return user(
		UserBroker, true,
		slices.Concat(
			consume(CommandsConsumer(UserBroker)),
			consume(FactsConsumer(UserBroker)),
			[]string{"keb.request.*", ResultSubject(UserBroker, "*"), "keb.ask.orchestrator.*", AskCurrentAs(UserBroker), "keb.ask.runtime.*"},
		),
		append(served(UserBroker), AskCredentialsAs("*"), AskKeepAs("*"), AskKeptAs("*")),
	)
}

// orchestratorUser makes the streams, the consumers of everybody and the bucket, but does not read what others consume, and
// only empties the bucket.
func orchestratorUser() User {
	publish := slices.Concat(
		consume(RequestsConsumer()),
		consume(ResultsConsumer()),
		[]string{
			"keb.command.*.*", "keb.fact.*.*", NoticeOperations, AskInstances, AskUpgrade, "keb.ask.hyperscaler.*", "keb.ask.spc.*", "$SRV.INFO", "$SRV.STATS",
			"$JS.API.INFO", "$JS.API.STREAM.PURGE." + stageStream,
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
		"keb.ask.orchestrator.*", AskCurrentAs("*"), "keb.fact.*.*", NoticeOperations,
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

// consume is what it takes to consume from a consumer that is there: look at it, pull, acknowledge, and put aside what cannot
// be read.
func consume(c ConsumerSpec) []string {
	of := string(c.Stream) + "." + c.Name
	return []string{"$JS.API.CONSUMER.INFO." + of, "$JS.API.CONSUMER.MSG.NEXT." + of, "$JS.ACK." + of + ".>", DeadSubject(c.Stream)}
}

// served is where a worker listens: its micro service, its ping and its questions.
func served(name string) []string {
	subjects := []string{"keb.worker." + name + ".ping", "keb.ask." + name + ".*"}
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		// The ids of its replicas follow the name.
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
