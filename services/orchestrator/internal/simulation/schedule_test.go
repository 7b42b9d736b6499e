package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// kind is the kind of a choice.
type kind uint8

const (
	doTask      kind = iota // a: which orchestrator and task, b: which message, c: fault, d: how many messages
	doWork                  // a: which command, b: outcome, c: data of the result, d: fault
	doTimer                 // the clock advances to the next time that an operation waits for
	doClock                 // a: the advance of the clock
	doRequest               // a: instance, b: operation type
	doAct                   // a: orchestrator, b: operation, c: action
	doCrash                 // a: orchestrator
	doLose                  // a: which stream, b: which message
	doDuplicate             // a: which stream, b: which message
	doWindow                // the duplicate window of the bus is cleared
	doStreams               // a: which streams are emptied
	doSkew                  // a: clock, b: skew
	doWorkers               // workers start or stop
	doMemory                // the stage memory is lost
	doHold                  // a: create, release or read, b, c, d: the scope
	doSignal                // a: orchestrator, b: operation, c: new, or one that was sent before, d: which one
	doLimit                 // a: change or read, b, c, d: the limits
	kinds
)

var kindNames = [kinds]string{
	"task", "work", "timer", "clock", "request", "operator", "crash", "lose", "duplicate", "window", "streams", "skew", "workers", "memory", "hold", "event", "limit",
}

// choice is one event of a schedule. An argument of zero is always harmless, so that shrinking can prefer it.
type choice struct {
	kind       kind
	a, b, c, d uint16
}

// The indexes of a setup.
const (
	setDefinition = iota // of the five operation types
	setPlan       = setDefinition + 5
	setLimit      = setPlan + instances     // of the five operation types, of global accounts, and of all operations
	setWeight     = setLimit + 7            // of a global account
	setSkew       = setWeight + 1           // of the orchestrators
	setWorker     = setSkew + orchestrators // the clock of the workers
	setFirst      = setWorker + 1           // instances requested at the start
	setSlow       = setFirst + 1            // results of steps with a wait after the last choice
	setupSize     = setSlow + 1
)

// schedule is the complete input of a run.
type schedule struct {
	// pool selects the definitions of the setup.
	pool    uint64
	setup   [setupSize]uint16
	choices []choice
}

// kindOf maps a byte to a kind, by the share of each kind.
var kindOf = func() (table [256]kind) {
	i := 0
	for _, share := range []struct {
		kind kind
		n    int
	}{
		{doWork, 46},
		{doTimer, 18},
		{doClock, 6},
		{doRequest, 4},
		{doAct, 5},
		{doCrash, 5},
		{doLose, 4},
		{doDuplicate, 4},
		{doWindow, 3},
		{doStreams, 1},
		{doSkew, 3},
		{doWorkers, 3},
		{doMemory, 3},
		{doHold, 8},
		{doSignal, 10},
		{doLimit, 8},
	} {
		for range share.n {
			table[i] = share.kind
			i++
		}
	}
	return table // the others are doTask
}()

// poolBits sets the number of seeds that share definitions: 1<<poolBits.
const poolBits = 17

// newSchedule returns the schedule of a seed.
func newSchedule(seed uint64) *schedule {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &schedule{pool: seed >> poolBits, choices: make([]choice, 40+rng.IntN(160))}
	for i := range s.setup {
		s.setup[i] = uint16(rng.Uint32())
	}
	for i := range s.choices {
		r := rng.Uint64()
		c := choice{kind: kindOf[r&255], a: uint16(r >> 8), b: uint16(r >> 24), c: uint16(r >> 40)}
		r = rng.Uint64()
		c.d = uint16(r)
		fault := uint16(r >> 16)
		switch c.kind {
		case doTask:
			c.c = 0
			if fault%16 == 0 {
				c.c = 1 + fault>>4%3
			}
		case doWork:
			if fault%2 == 0 {
				c.b = 0 // it succeeds
			}
			if fault>>1%8 != 0 {
				c.d = 0
			}
		}
		s.choices[i] = c
	}
	return s
}

func (s *schedule) clone() *schedule {
	c := *s
	c.choices = append([]choice(nil), s.choices...)
	return &c
}

// String returns a short and unique text form.
func (s *schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %d, setup %v\n", s.pool, s.setup)
	for i, c := range s.choices {
		fmt.Fprintf(&b, "%3d %-9s %d %d %d %d\n", i, kindNames[c.kind], c.a, c.b, c.c, c.d)
	}
	return b.String()
}
