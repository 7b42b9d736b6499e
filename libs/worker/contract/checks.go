package contract

import (
	"context"
)

// registration is the check that all others require.
const registration = "registration"

// check is one rule of the contract.
type check struct {
	name string
	// what completes the sentence "the worker ...".
	what, hint string
	// live checks use the worker; the others evaluate its recorded messages.
	live bool
	run  func(context.Context, *kit)
}

// Names lists the checks in the order in which they run.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// rules is the page with the rule of each check.
const rules = "docs/wire-contract.md"

// docs returns the page and the anchor of the rule.
func (c *check) docs() string { return rules + "#check-" + c.name }

func checks() []check {
	return append([]check{
		{
			registration, "registers as a NATS micro service with its name, version and steps",
			"add the micro service keb-worker-<worker> with the metadata worker, version and steps; without it the orchestrator takes the steps for unserved",
			true, checkRegistration,
		},
		{
			"answers", "answers a command for each step, and then acknowledges it",
			"pull from the durable consumer <worker> of KEB_COMMANDS, publish a result and acknowledge", true, checkAnswers,
		},
		{
			"repeated", "tolerates the same command twice, and again with a higher dispatch",
			"look before you create, and answer a repeated command as the first time; each dispatch wants an answer of its own unless it came while the step ran",
			true, checkRepeated,
		},
		{
			"redelivery", "tolerates the loss of its acknowledgement",
			"the command comes again after the ack wait: execute it again, if it is still waited for, and answer again under the same ids", true, checkRedelivery,
		},
		{
			"result-first", "acknowledges a command only after the stream has stored its result",
			"publish to JetStream with a reply subject, wait for its answer, and only then acknowledge; on an error do not acknowledge", true, checkResultFirst,
		},
		{
			"late", "drops a late command without executing it",
			"compare executeBefore with the clock right before the step starts; if it has passed, acknowledge and do nothing", true, checkLate,
		},
		{
			"unknown-step", "leaves a command for an unknown step to other versions",
			"give it back with a delay (-NAK), and neither answer nor acknowledge it: another version may have the step", true, checkUnknownStep,
		},
		{
			"unreadable", "moves an unreadable command to the dead letters, and continues",
			"copy it to keb.dead.KEB_COMMANDS with the header Keb-Dead-Reason, then terminate it (+TERM)", true, checkUnreadable,
		},
		{
			"unknown-members", "ignores unknown members, headers and attributes",
			"within a version members are only added: decode what you know, and refuse nothing", true, checkUnknownMembers,
		},
		{
			"large", "accepts details of 700 KiB from other workers", "a message may have up to 1 MiB", true, checkLarge,
		},
		{
			"unicode", "accepts any text in parameters, names and details", "bodies are JSON in UTF-8", true, checkUnicode,
		},
		{
			"stage-lost", "reports a lost stage memory, or does not need it",
			"if stageMemory is true and the marker of the stage is not in the bucket, answer stage.lost and not failed", true, checkStageLost,
		},
		{
			"stage-memory", "seals and marks what it writes into the stage memory, or writes nothing",
			"write the marker before the first value, seal each value with its key as associated data, and set stageMemory in the result", true, checkStageMemory,
		},
		{
			"lagging-replica", "reads the stage memory again if a replica lags, or does not read it",
			"ask the leader ($JS.API.STREAM.INFO.KV_keb_stage) before you take a value or the marker for missing, and read again if it has the key",
			true, checkLaggingReplica,
		},
		{
			"no-stage-bucket", "starts and answers while the bucket of the stage memory is missing",
			"open the bucket when a step uses it; wait for it for up to 10 s, and answer with a retry if it does not come back", true, checkNoStageBucket,
		},
		{
			"no-stage-keys", "starts and answers without KEB_STAGE_KEYS",
			"the keys are optional: only a step that uses the stage memory fails without them", true, checkNoStageKeys,
		},
		{
			"cases", "answers the team's cases as they say", "compare the case with what the step does; the worker's own log says more",
			true, checkCases,
		},
		{
			"long-step", "reports progress while a step takes longer than the ack wait", "send +WPI at least every third of the ack wait while the step runs",
			true, checkLongStep,
		},
		{
			"time-limit", "abandons a step at its deadline", "end the step at executeBefore, and answer with a retry", true, checkTimeLimit,
		},
		{
			"cancel", "ends a step whose command is cancelled",
			"listen on keb.worker.<worker>.cancel in every replica, without a queue group; end the step that has the operation id and the cursor, and publish its result",
			true, checkCancel,
		},
		{
			"concurrency", "takes no more commands than it can run soon",
			"bound the batch of a pull by the free slots; what waits too long in the worker is delivered a second time", true, checkConcurrency,
		},
		{
			"throughput", "answers many commands, and lets none wait for longer than the ack wait", "bound what you pull, and send +WPI for what waits",
			true, checkThroughput,
		},
		{
			"memory", "needs no more memory with each command", "keep nothing of a command after its answer: no cache by operation, no closure, timer or listener that stays",
			true, checkMemory,
		},
		{
			"reconnect", "reconnects after a cut connection and a restart of NATS, and loses no command",
			"reconnect for ever, with a pause; pull again and register again", true, checkReconnect,
		},
		{
			"consumer-again", "continues after its consumer was deleted and created again",
			"watch the heartbeats of the pull (idle_heartbeat), and look for the consumer again when they stay away", true, checkConsumer,
		},
		{
			"outdated", "asks about a redelivered command, and executes it only if it is current",
			"when the count of deliveries is above 1, ask keb.ask.orchestrator.current.<worker>; acknowledge what is not in the answer, and without an answer give it back (-NAK) for a second",
			true, checkOutdated,
		},
		{
			"frozen", "asks about a command that it got before it was frozen",
			"ask, too, when the pull of a command was sent more than three seconds ago: another replica may have executed it",
			true, checkFrozen,
		},
		{
			"stop", "stops on SIGTERM: finishes running steps, returns other commands, exit code 0",
			"stop pulling, give back (-NAK) what has not begun, wait for what runs and its result, close the connection, end; without a shell or npm in front",
			true, checkStop,
		},
		{
			"kill", "loses nothing when it is killed: the next instance executes the command", "keep no state in the worker, and acknowledge last", true, checkKill,
		},
		{
			"cleanup", "removes what its steps have made", "look at the error of the cleanup: it has the details that the steps have saved for the instance",
			true, checkCleanup,
		},
	}, invariants()...)
}
