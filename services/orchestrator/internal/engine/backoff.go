package engine

import (
	"hash/fnv"
	"math"
	"strconv"
	"time"

	"github.com/kyma-project/keb/libs/process"
)

// countFailure counts the failed tries of a step in a row, if its retry interval grows with them. A try without an error ends the row.
func (m *machine) countFailure(step *process.Step, failed bool) int {
	if step.Retry.Factor <= 1 {
		return 1
	}
	try := m.s.Tries[step.Name]
	before := try.Failures
	try.Failures++
	if !failed {
		try.Failures = 0
	}
	if try.Failures != before {
		try.FirstTriedAt = m.s.FirstTriedAt
		m.setTry(step.Name, try)
	}
	return try.Failures
}

// backOff returns the time to the next try after a number of failed tries in a row: every * factor^(failures-1), at most max, and longer
// or shorter by a part of the jitter. The part follows from the operation and its cursor, so that the same transition has the same
// result, and operations that failed together do not return together.
func (m *machine) backOff(step *process.Step, failures int) time.Duration {
	r := step.Retry
	after := float64(r.Every)
	if r.Factor > 1 {
		after = min(float64(r.Max), after*math.Pow(r.Factor, float64(failures-1)))
	}
	return time.Duration(after * (1 + r.Jitter*m.chance()))
}

// chance returns a number from -1 to 1 that is different for every operation and cursor.
func (m *machine) chance() float64 {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt([]byte(m.s.Operation.ID), m.s.Cursor, 10))
	x := h.Sum64() // numbers of similar inputs are close to each other, so the bits are mixed
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return float64(x>>11)/(1<<52) - 1
}
