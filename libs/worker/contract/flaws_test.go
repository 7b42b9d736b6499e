package contract_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker/contract"
)

// flaw is what is wrong with a worker.
type flaw string

const (
	flawless             flaw = ""
	registersNoStep      flaw = "registers no step"
	answersWrongly       flaw = "answers something else than the team says"
	ignoresDispatches    flaw = "ignores a higher dispatch"
	ignoresRedeliveries  flaw = "ignores what it has answered and is asked again"
	ignoresRefusals      flaw = "acknowledges although the stream refused the result"
	executesLate         flaw = "ignores executeBefore"
	takesForeignSteps    flaw = "takes commands for steps that it does not have"
	forgetsTheUnreadable flaw = "drops what it cannot read"
	crashesOnMembers     flaw = "crashes on a member that it does not know"
	refusesLarge         flaw = "does not take large commands"
	failsOnText          flaw = "fails on other alphabets"
	failsWithoutMemory   flaw = "fails when the stage memory is lost"
	believesTheReplica   flaw = "takes a marker that a lagging replica lacks for lost"
	needsTheBucket       flaw = "does not start without the bucket of the stage memory"
	failsWithoutBucket   flaw = "fails while the bucket of the stage memory is missing"
	needsKeys            flaw = "does not start without stage keys"
	failsWithoutKeys     flaw = "fails every command without stage keys"
	dropsWithoutKeys     flaw = "drops what it has to remember without stage keys"
	writesInTheClear     flaw = "writes into the stage memory without a seal"
	hidesItsWrites       flaw = "does not say that it has written into the stage memory"
	keepsSilent          flaw = "reports no progress"
	goesOnTooLong        flaw = "goes on after executeBefore"
	reportsTooLong       flaw = "reports progress after executeBefore"
	ignoresCancels       flaw = "does not hear that a command is cancelled"
	takesTooMany         flaw = "takes more than it can run"
	losesSome            flaw = "loses every 40th command"
	neverReconnects      flaw = "never reconnects"
	missesItsConsumer    flaw = "does not notice that its consumer is gone"
	neverAsks            flaw = "executes what was delivered before without a question"
	guesses              flaw = "executes redelivered commands without an answer"
	ignoresTheAnswer     flaw = "executes what is not waited for any more although it was told so"
	believesWhatItGot    flaw = "executes what it got before it was frozen"
	asksWrongly          flaw = "asks about commands in another form"
	asksForMoreTooLate   flaw = "asks for more time when it has published the result"
	dropsWhatItHolds     flaw = "holds commands when it is stopped"
	endsWithAnError      flaw = "ends with an error when it is stopped"
	acknowledgesFirst    flaw = "acknowledges before it has the result"
	answersTwice         flaw = "answers twice with different outcomes"
	wrongSubject         flaw = "publishes on another subject"
	wrongSource          flaw = "calls itself something else"
	noMessageID          flaw = "sends no message id"
	noCursor             flaw = "leaves the cursor out"
	noStart              flaw = "leaves startedAt out"
	noTrace              flaw = "drops the trace"
	endsBeforeItBegins   flaw = "has a wrong clock"
	patchesOthers        flaw = "patches the details of others"
	errorWithoutReason   flaw = "gives no reason"
	waitsForDays         flaw = "waits for ten days"
	leaksCredentials     flaw = "tells the credentials that it has claimed"
	tellsItsMemory       flaw = "tells what it remembers"
	printsThePassword    flaw = "prints the password of NATS"
	panics               flaw = "panics on every command"
	panicsOnText         flaw = "panics on other alphabets"
	hangs                flaw = "hangs on every command"
	keepsCommands        flaw = "keeps every command in memory"
	leavesKeys           flaw = "writes keys of no operation"
	leavesObjects        flaw = "does not remove what it has made"
	triesMore            flaw = "listens to the results of others"
)

// slowCase is for the checks of long steps.
var slowCase = contract.Case{
	Name: "takes its time", Step: rawStep, Parameters: map[string]any{"take": "3s"}, Takes: contract.Duration(3 * time.Second),
}

// cleanupCase removes what the step has made. It fails with the details of another instance.
var cleanupCase = contract.Case{
	Name: "removes it", Step: rawStep, Operation: event.Deprovision, Parameters: map[string]any{"clean": true}, Cleanup: true,
}

// planted is a flaw and what finds it.
type planted struct {
	flaw flaw
	// check is the one that must fail; also are those that cannot but fail with it.
	check string
	also  []string
	// slow flaws show with the slow case.
	slow bool
	// silent flaws leave something unanswered, which the check waits for in vain.
	silent bool
	// stops means that the other checks do not run.
	stops bool
	// process means that the worker must be a process of its own.
	process bool
	// cases are those of the team.
	cases []contract.Case
}

var flaws = []planted{
	{flaw: registersNoStep, check: "registration"},
	{flaw: answersWrongly, check: "cases", cases: []contract.Case{{
		Name: "saves the id", Step: rawStep, Expect: contract.Expectation{Details: map[string]any{"id": "expected"}},
	}}},
	{flaw: ignoresDispatches, check: "repeated", silent: true},
	{flaw: ignoresRedeliveries, check: "redelivery", silent: true},
	{flaw: ignoresRefusals, check: "result-first"},
	{flaw: executesLate, check: "late"},
	{flaw: takesForeignSteps, check: "unknown-step"},
	{flaw: forgetsTheUnreadable, check: "unreadable"},
	{flaw: crashesOnMembers, check: "unknown-members"},
	{flaw: refusesLarge, check: "large", silent: true},
	{flaw: failsOnText, check: "unicode"},
	{flaw: failsWithoutMemory, check: "stage-lost"},
	{flaw: writesInTheClear, check: "stage-memory"},
	{flaw: hidesItsWrites, check: "stage-memory"},
	{flaw: believesTheReplica, check: "lagging-replica"},
	{flaw: needsTheBucket, check: "no-stage-bucket"},
	{flaw: failsWithoutBucket, check: "no-stage-bucket"},
	{flaw: needsKeys, check: "no-stage-keys"},
	{flaw: failsWithoutKeys, check: "no-stage-keys"},
	{flaw: dropsWithoutKeys, check: "no-stage-keys"},
	{flaw: keepsSilent, check: "long-step", also: []string{"concurrency", "time-limit"}, slow: true},
	{flaw: goesOnTooLong, check: "time-limit", slow: true},
	{flaw: reportsTooLong, check: "late-progress", slow: true},
	{flaw: asksForMoreTooLate, check: "more-time"},
	{flaw: ignoresCancels, check: "cancel", slow: true},
	{flaw: takesTooMany, check: "concurrency", also: []string{"long-step", "stop", "throughput", "time-limit"}, slow: true},
	{flaw: losesSome, check: "throughput", also: []string{"stop"}},
	{flaw: neverReconnects, check: "reconnect", also: []string{"outdated"}, silent: true},
	{flaw: missesItsConsumer, check: "consumer-again", silent: true},
	{flaw: neverAsks, check: "outdated"},
	{flaw: guesses, check: "outdated"},
	{flaw: ignoresTheAnswer, check: "outdated"},
	{flaw: believesWhatItGot, check: "frozen", process: true},
	{flaw: asksWrongly, check: "outdated", also: []string{"kill", "reconnect", "redelivery", "result-first", "stop"}, silent: true},
	{flaw: dropsWhatItHolds, check: "stop"},
	{flaw: dropsWhatItHolds, check: "stop", slow: true},
	{flaw: endsWithAnError, check: "stop"},
	{flaw: acknowledgesFirst, check: "kill", also: []string{"acknowledged-last"}, silent: true},
	{flaw: acknowledgesFirst, check: "acknowledged-last", also: []string{"kill"}, silent: true},
	{flaw: answersTwice, check: "one-result"},
	{flaw: wrongSubject, check: "subject"},
	{flaw: wrongSource, check: "attributes"},
	{flaw: noMessageID, check: "message-id"},
	{flaw: noCursor, check: "echo"},
	{flaw: noStart, check: "schema"},
	{flaw: noTrace, check: "trace"},
	{flaw: endsBeforeItBegins, check: "times"},
	{flaw: patchesOthers, check: "details"},
	{flaw: errorWithoutReason, check: "errors"},
	{flaw: waitsForDays, check: "retry-after"},
	{flaw: leaksCredentials, check: "secrets"},
	{flaw: tellsItsMemory, check: "secrets", cases: []contract.Case{{
		Name: "remembers", Step: rawStep, Remembered: map[string]string{"word": "a word that nobody may see,\nin two lines"},
	}}},
	{flaw: printsThePassword, check: "secrets"},
	{flaw: triesMore, check: "permissions"},
	{flaw: panics, check: "answers", stops: true},
	{flaw: hangs, check: "answers", stops: true, silent: true},
	{flaw: panicsOnText, check: "panics", also: []string{"unicode"}},
	{flaw: keepsCommands, check: "memory"},
	{flaw: leavesKeys, check: "bucket"},
	{flaw: leavesObjects, check: "cleanup", cases: []contract.Case{cleanupCase}},
}

// quick are the checks that wait for nothing.
var quick = []string{
	"answers", "repeated", "late", "unreadable", "unknown-members", "unicode", "stage-lost", "one-result", "acknowledged-last", "subject", "attributes",
	"message-id", "echo", "schema", "trace", "times", "details", "errors", "retry-after", "secrets", "permissions",
}

// all runs every check against every flaw.
func all() bool { return testkit.InSuite("workers") }

func rawConfig(f flaw) contract.Config {
	return contract.Config{
		Worker: rawName, Steps: []string{rawStep}, Starter: rawWorker(f),
		AckWait: time.Second, Patience: 30 * time.Second, Drain: 5 * time.Second, Concurrency: 4, Commands: 100,
	}
}

func TestAWorkerWithoutTheSDKPassesEveryCheck(t *testing.T) {
	t.Parallel()
	testkit.Suite(t, "workers")
	cfg := rawConfig(flawless)
	cfg.Starter = rawProcess(flawless)
	cfg.Cases = []contract.Case{slowCase, cleanupCase}
	report, err := contract.Run(t.Context(), cfg)
	require.NoError(t, err)
	var ran []string
	for _, f := range report.Findings {
		ran = append(ran, f.Check)
		if f.Status != contract.Passed {
			t.Errorf("%s: %s: %s", f.Check, f.Status, strings.Join(f.Problems, "\n"))
		}
	}
	if diff := cmp.Diff(contract.Names(), ran); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
}

func TestEachCheckFindsItsFlaw(t *testing.T) {
	t.Parallel()
	held := regexp.MustCompile(`held [1-9]\d* commands`)
	for _, test := range flaws {
		t.Run(test.check+"/"+string(test.flaw), func(t *testing.T) {
			t.Parallel()
			if test.slow {
				testkit.Suite(t, "workers")
			}
			cfg := rawConfig(test.flaw)
			if test.process {
				cfg.Starter = rawProcess(test.flaw)
			}
			if !all() {
				cfg.Checks = append(slices.Clone(quick), test.check)
			}
			cfg.Cases = test.cases
			if test.slow {
				cfg.Cases = []contract.Case{slowCase}
			} else {
				cfg.AckWait = 4 * time.Second // what comes again because the machine was busy would show other flaws than the planted one
			}
			if test.silent {
				cfg.Patience = 5 * time.Second
			}
			report, err := contract.Run(t.Context(), cfg)
			require.NoError(t, err)
			found := false
			for _, f := range report.Findings {
				if f.Status != contract.Failed {
					continue
				}
				t.Logf("%s (%.1f s): %s", f.Check, f.Took, strings.Join(f.Problems, "\n"))
				found = found || f.Check == test.check
				if f.Check != test.check && !slices.Contains(test.also, f.Check) {
					t.Errorf("%s fails, too: %s", f.Check, strings.Join(f.Problems, "\n"))
				}
				if test.flaw == dropsWhatItHolds && !held.MatchString(f.Figure) {
					t.Errorf("%s says %q: want how many commands the worker held", f.Check, f.Figure)
				}
				if f.Hint == "" || f.Docs == "" {
					t.Errorf("%s gives no hint", f.Check)
				}
			}
			if !found {
				t.Errorf("%s does not fail", test.check)
			}
			if stopped := report.Stopped != "" && len(report.Findings) == 2; stopped != test.stops {
				t.Errorf("%d findings, stopped: %q: want a stop: %t", len(report.Findings), report.Stopped, test.stops)
			}
			if limit := cfg.Patience.Seconds() + 5; test.stops && report.Took > limit {
				t.Errorf("it took %.1f s: want at most %.1f", report.Took, limit)
			}
		})
	}
}

func TestTheLastAcknowledgementEndsTheCountOfThroughput(t *testing.T) {
	t.Parallel()
	// Nothing is heard of this one while nothing is to do, for half a minute: an await that needs one more message waits for that. Only the
	// server asks a new connection, after about two seconds; the first check takes longer.
	cfg := rawConfig(missesItsConsumer)
	cfg.Checks, cfg.Commands, cfg.AckWait = []string{"redelivery", "throughput"}, 20, 4*time.Second
	report, err := contract.Run(t.Context(), cfg)
	require.NoError(t, err)
	f := report.Findings[len(report.Findings)-1]
	if f.Check != "throughput" || f.Status != contract.Passed || f.Took > 25 {
		t.Errorf("%s: %s after %.1f s (%s): want it to pass within 25 s\n%s", f.Check, f.Status, f.Took, f.Figure, strings.Join(f.Problems, "\n"))
	}
	t.Log(f.Figure)
}

func TestEveryCheckHasAFlawThatItFinds(t *testing.T) {
	t.Parallel()
	for _, name := range contract.Names() {
		if !slices.ContainsFunc(flaws, func(f planted) bool { return f.check == name }) {
			t.Errorf("no flaw is there for %s", name)
		}
	}
}
