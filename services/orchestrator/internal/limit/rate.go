package limit

import "time"

// burst is the time for which commands of a rate may begin at once. It covers the time between two rounds of an orchestrator.
const burst = 50 * time.Millisecond

// AtOnce returns the maximum number of commands that begin at the same time.
func (r Rate) AtOnce() int {
	return max(1, int((int64(r.Commands)*int64(burst)+int64(r.Per)-1)/int64(r.Per)))
}

// pace returns the interval between two commands, and the time by which a command may begin early. With both, at most Commands begin in any
// time of the length Per: first a burst, and then one command after each interval.
func (r Rate) pace() (interval, early time.Duration) {
	atOnce := r.AtOnce()
	intervals := int64(r.Commands - atOnce + 1)
	interval = time.Duration((int64(r.Per) + intervals - 1) / intervals)
	return interval, time.Duration(atOnce-1) * interval
}

// Bounded returns the value that Taken returned for the last command, or the highest one that it can return now. Another clock may have set a
// later one, or a lower rate.
func (r Rate) Bounded(next, now time.Time) time.Time {
	interval, early := r.pace()
	if latest := now.Add(interval + early); next.After(latest) {
		return latest
	}
	return next
}

// Ready returns when the next command may begin. next is a bounded value.
func (r Rate) Ready(next time.Time) time.Time {
	_, early := r.pace()
	return next.Add(-early)
}

// Taken returns the value for the command after one that begins now.
func (r Rate) Taken(next, now time.Time) time.Time {
	interval, _ := r.pace()
	if next.Before(now) {
		next = now
	}
	return next.Add(interval)
}
