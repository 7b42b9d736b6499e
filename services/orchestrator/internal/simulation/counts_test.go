package simulation_test

import (
	"fmt"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// counted is an event of a schedule. A run without an event proves nothing about it.
type counted int

const (
	countTransitions counted = iota
	countCommits
	countExecutions
	countRequests
	countStarts
	countNothingToDo
	countWaits
	countAdmitted
	countTurns
	countPreempted
	countActions
	countExtended
	countRefused
	countCrashes
	countCommitFailed
	countCommitUnknown
	countPublishFailed
	countPublishUnknown
	countConflicts
	countStale
	countRepublished
	countAtStart
	countDuplicates
	countDropped
	countNotAcked
	countReordered
	countLost
	countStreams
	countWorkerDied
	countLate
	countSentAgain
	countLostAgain
	countAbsent
	countMemory
	countStageLost
	countPurges
	countDetails
	countUnreadable
	countSpent
	countWaitSpent
	countHangSpent
	countBackOff
	countSkippedAgain
	countFromEarlierStage
	countFromStep
	countNoWorkerSpent
	countRetryBudgetReset
	countDeadlines
	countTimers
	countJumps
	countSkews
	countBack
	countHolds
	countHeld
	countReleased
	countFolded
	countRangeFailed
	countSignals
	countAwaited
	countDelivered
	countLimits
	countLimited
	countGranted
	countAdopted
	countsEnd
)

var countNames = [countsEnd]string{
	"transitions", "commits", "commands executed", "requests", "operations started", "operations with nothing to do", "operations that wait",
	"operations admitted later", "turns compared", "cancelled by a deprovisioning", "actions of an operator", "times more time was given", "actions refused", "crashes at work", "commits failed",
	"commits without an answer", "publications failed", "publications without an answer", "conflicts",
	"stale results", "commands published again", "of these at a start", "messages duplicated", "duplicates dropped by the bus",
	"messages not acknowledged", "messages out of order", "messages lost", "streams emptied", "workers died at work", "commands too late",
	"commands sent again", "commands sent again after a loss", "workers started or stopped", "stage memory lost", "stages lost", "purges", "details patched", "details unreadable",
	"budgets spent", "wait budgets spent", "budgets spent by a hang", "tries after a longer interval", "steps skipped again", "retries from an earlier stage", "retries from a step", "budgets spent without a worker", "retry budgets reset", "deadlines reached", "waits over", "clock jumps of minutes", "clocks set wrong", "clocks set back",
	"holds", "operations held", "operations released", "history entries folded", "streams not read",
	"events stored", "tries that wait for an event", "events delivered",
	"changes of limits", "commands limited", "commands granted", "commands in flight counted in a new limit",
}

// counts are the counters of a run.
type counts struct {
	of          [countsEnd]int64
	crashBefore [calls]int64
	ends        map[event.OperationState]int64
	schedules   int64
	choices     int64
}

func (w *world) count(c counted) { w.counts.of[c]++ }

func (c *counts) add(other *counts) {
	for i := range c.of {
		c.of[i] += other.of[i]
	}
	for i := range c.crashBefore {
		c.crashBefore[i] += other.crashBefore[i]
	}
	if c.ends == nil {
		c.ends = map[event.OperationState]int64{}
	}
	for state, n := range other.ends {
		c.ends[state] += n
	}
	c.schedules += other.schedules
	c.choices += other.choices
}

// never returns the names of the events that did not happen.
func (c *counts) never() (names []string) {
	for i, n := range c.of {
		if n == 0 {
			names = append(names, countNames[i])
		}
	}
	for i, n := range c.crashBefore {
		if n == 0 {
			names = append(names, "crash before "+callNames[i])
		}
	}
	for _, s := range []event.OperationState{event.Succeeded, event.Failed, event.Cancelled} {
		if c.ends[s] == 0 {
			names = append(names, "an operation that ends as "+string(s))
		}
	}
	return names
}

// String returns a table of all counters.
func (c *counts) String() string {
	var b strings.Builder
	line := func(name string, n int64) { fmt.Fprintf(&b, "  %-38s %12d\n", name, n) }
	line("choices", c.choices)
	for i, n := range c.of {
		line(countNames[i], n)
	}
	for i, n := range c.crashBefore {
		line("crash before: "+callNames[i], n)
	}
	for _, s := range []event.OperationState{event.Succeeded, event.Failed, event.Cancelled} {
		line("operations "+string(s), c.ends[s])
	}
	return b.String()
}
