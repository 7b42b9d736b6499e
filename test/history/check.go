package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Rule is a promise that a history can contradict.
type Rule string

// The rules.
const (
	// WellFormed: an invocation has a return after its call, and an answer 202 names an operation.
	WellFormed Rule = "the history is well-formed"
	// Linearizable: the instance is a linearizable register of accepted requests.
	Linearizable Rule = "an instance is a linearizable register"
	// Decided: the search for an order ended in time.
	Decided Rule = "the order was decided in time"
	// OneRequest: one operation belongs to one request.
	OneRequest Rule = "an operation belongs to one request"
	// Final: an accepted operation reaches an end that the platform sees.
	Final Rule = "accepted implies final"
	// Monotonic: the end of an operation does not change.
	Monotonic Rule = "last_operation is monotonic"
	// Exists: an answered binding exists with the same credentials until it, or its instance, is removed, and not after that.
	Exists Rule = "an answered binding exists"
	// NotDoubled and NotMissing compare the external systems with the last read of each instance.
	NotDoubled Rule = "no object is doubled"
	NotMissing Rule = "no object is missing"
	// Gapless: every transition has a fact, the first fact is the start, the last one is the end, and it is the polled one.
	Gapless Rule = "facts are gapless"
)

// Violation is a contradiction between a history and a rule.
type Violation struct {
	Rule     Rule
	Instance string
	Problem  string
	// Records are the offending invocations.
	Records []*Record
}

func (v Violation) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s (instance %s)", v.Rule, v.Problem, v.Instance)
	for _, r := range v.Records {
		text.WriteString("\n    " + r.String())
	}
	return text.String()
}

// Verdict is the result of a check. The history is as promised if there is no violation.
type Verdict struct {
	Violations                                                       []Violation
	Instances, Accepted, Final, Bindings, Facts, Transitions, Ledger int
	// Doubled and Missing are numbers of objects.
	Doubled, Missing int
	// Took is the duration of the check.
	Took time.Duration
}

// life is what happened to one instance.
type life struct {
	id          string
	invocations []*Record
	holds       *Record
	// facts and transitions are by operation.
	facts, transitions map[string][]*Record
}

type checker struct {
	Verdict
	limit             time.Duration
	lives             map[string]*life
	complete, created *Record
	// accepted is the first answer that names an operation; ends is the first poll that shows its end.
	accepted, ends map[string]*Record
}

// Check checks a history. limit is the time for the search of one instance; a search that takes longer is a violation of Decided. The
// ledger is compared if the history has it.
func Check(records []*Record, limit time.Duration) *Verdict {
	start := time.Now()
	c := checker{limit: limit, lives: map[string]*life{}, accepted: map[string]*Record{}, ends: map[string]*Record{}}
	for _, r := range records {
		c.sort(r)
	}
	c.Instances = len(c.lives)
	orders, complete := 0, 0
	for _, id := range slices.Sorted(maps.Keys(c.lives)) {
		l := c.lives[id]
		slices.SortStableFunc(l.invocations, func(a, b *Record) int { return cmp.Compare(a.Call, b.Call) })
		isFormed := c.checkForm(l)
		c.checkOperations(l)
		c.checkBindings(l)
		if isFormed {
			c.checkRegister(l)
		}
		c.checkHolds(l)
		c.checkFacts(l)
		all, succeeded := l.provisionings()
		orders, complete = orders+all, complete+succeeded
	}
	c.checkCreated(orders, complete)
	c.Took = time.Since(start)
	return &c.Verdict
}

func (c *checker) violate(rule Rule, instance string, records []*Record, format string, args ...any) {
	c.Violations = append(c.Violations, Violation{Rule: rule, Instance: instance, Problem: fmt.Sprintf(format, args...), Records: records})
}

func (c *checker) sort(r *Record) {
	switch r.Kind {
	case Complete:
		c.complete = r
		return
	case Created:
		c.created = r
		return
	}
	l := c.lives[r.Instance]
	if l == nil {
		l = &life{id: r.Instance, facts: map[string][]*Record{}, transitions: map[string][]*Record{}}
		c.lives[r.Instance] = l
	}
	switch r.Kind {
	case Holds:
		l.holds = r
		c.Ledger++
	case Transition:
		l.transitions[r.Operation] = append(l.transitions[r.Operation], r)
		c.Transitions++
	case Fact:
		l.facts[r.Operation] = append(l.facts[r.Operation], r)
		c.Facts++
	default:
		l.invocations = append(l.invocations, r)
	}
}

func (c *checker) checkForm(l *life) (ok bool) {
	ok = true
	for _, r := range l.invocations {
		switch {
		case r.Outcome != Unknown && r.Return < r.Call:
			c.violate(WellFormed, l.id, []*Record{r}, "the return comes before the call")
		case r.isAccepted() && r.Operation == "":
			c.violate(WellFormed, l.id, []*Record{r}, "the answer 202 names no operation")
		default:
			continue
		}
		ok = false
	}
	return ok
}

// checkOperations checks the rules OneRequest, Final and Monotonic.
func (c *checker) checkOperations(l *life) {
	for _, r := range l.invocations {
		if !r.isAccepted() {
			continue
		}
		switch first := c.accepted[r.Operation]; {
		case first == nil:
			c.accepted[r.Operation] = r
			c.Accepted++
		case first.Instance != r.Instance || first.Kind != r.Kind || first.Value != r.Value:
			c.violate(OneRequest, l.id, []*Record{first, r}, "two requests got operation %s", r.Operation)
		}
	}
	unknown := map[string]*Record{}
	for _, r := range l.invocations {
		if r.Kind != Poll || r.Outcome == Unknown {
			continue
		}
		end := r.State
		if r.Status == 410 {
			end = Succeeded
		}
		switch first := c.ends[r.Operation]; {
		case r.Status == 404 && unknown[r.Operation] == nil:
			unknown[r.Operation] = r
		case r.Outcome == Failed && r.Status != 410: // for example 429
		case end == InProgress:
			if first != nil && first.Return < r.Call {
				c.violate(Monotonic, l.id, []*Record{first, r}, "operation %s had ended", r.Operation)
			}
		case first == nil:
			c.ends[r.Operation] = r
		case cmp.Or(first.State, Succeeded) != end:
			c.violate(Monotonic, l.id, []*Record{first, r}, "operation %s has two ends", r.Operation)
		}
	}
	for _, r := range l.invocations {
		if !r.isAccepted() || c.accepted[r.Operation] != r {
			continue
		}
		switch lost := unknown[r.Operation]; {
		case lost != nil:
			c.violate(Final, l.id, []*Record{r, lost}, "the broker does not have the accepted operation %s", r.Operation)
		case c.ends[r.Operation] == nil:
			c.violate(Final, l.id, []*Record{r}, "no poll shows the end of operation %s", r.Operation)
		default:
			c.Final++
		}
	}
}

func (c *checker) checkRegister(l *life) {
	ends := map[string]string{}
	for op, r := range c.ends {
		if r.Instance == l.id {
			ends[op] = cmp.Or(r.State, Succeeded)
		}
	}
	switch result, stuck := linearize(l.invocations, ends, c.limit); {
	case result == porcupine.Unknown:
		c.violate(Decided, l.id, nil, "unknown: no decision about %d invocations within %s", len(l.invocations), c.limit)
	case result == porcupine.Illegal && stuck == nil:
		c.violate(Linearizable, l.id, nil, "no order of its invocations explains the answers")
	case result == porcupine.Illegal:
		c.violate(Linearizable, l.id, []*Record{stuck}, "no order of its invocations explains this answer")
	}
}

// checkBindings checks the rule Exists.
func (c *checker) checkBindings(l *life) {
	bindings := map[string][]*Record{}
	for _, r := range l.invocations {
		if r.Binding != "" {
			bindings[r.Binding] = append(bindings[r.Binding], r)
		}
	}
	// mayTakeEffect reports whether one of these requests may have taken effect before the moment.
	mayTakeEffect := func(records []*Record, kind Kind, before int64) bool {
		return slices.ContainsFunc(records, func(r *Record) bool { return r.Kind == kind && r.Outcome != Failed && r.Call < before })
	}
	for _, id := range slices.Sorted(maps.Keys(bindings)) {
		records := bindings[id]
		for i, read := range records {
			if read.Kind != GetBinding || read.Status != 200 && read.Status != 404 {
				continue
			}
			c.Bindings++
			for _, r := range records[:i] {
				switch {
				case r.Return >= read.Call || r.Outcome != OK:
				case r.Kind == Unbind && read.Outcome == OK && !slices.ContainsFunc(records, func(b *Record) bool {
					return b.Kind == Bind && b.Outcome != Failed && b.Call < read.Return && (b.Outcome == Unknown || b.Return > r.Call)
				}):
					c.violate(Exists, l.id, []*Record{r, read}, "binding %s was removed", id)
				case r.Kind != Bind || mayTakeEffect(records, Unbind, read.Return) || mayTakeEffect(l.invocations, Deprovision, read.Return):
				case read.Outcome == Failed:
					c.violate(Exists, l.id, []*Record{r, read}, "binding %s does not exist", id)
				case read.Value != r.Value:
					c.violate(Exists, l.id, []*Record{r, read}, "binding %s has other credentials", id)
				}
			}
		}
	}
}

// lastRead returns the last get that shows whether the instance exists; nil if no such get was called after the return of all requests that
// may have changed the instance.
func (l *life) lastRead() (last *Record) {
	for _, r := range l.invocations {
		if r.Kind == Get && (r.Status == 200 || r.Status == 404) {
			last = r
		}
	}
	for _, r := range l.invocations {
		isChange := r.Kind == Provision || r.Kind == Update || r.Kind == Deprovision
		if last != nil && isChange && r.Outcome != Failed && r.Return >= last.Call {
			return nil
		}
	}
	return last
}

// provisionings returns how many provisionings of the instance created objects, and how many of them succeeded and so created all.
func (l *life) provisionings() (all, succeeded int) {
	for op, transitions := range l.transitions {
		if transitions[0].Type != string(Provision) {
			continue
		}
		all++
		if slices.ContainsFunc(l.facts[op], func(f *Record) bool { return f.Type == FactSucceeded }) {
			succeeded++
		}
	}
	return all, succeeded
}

// checkHolds compares the objects of an instance with its last read.
func (c *checker) checkHolds(l *life) {
	if l.holds == nil || c.complete == nil {
		return
	}
	last := l.lastRead()
	if last == nil {
		c.violate(WellFormed, l.id, nil, "no get comes after the last request, so that nothing is known about its objects")
		return
	}
	for key, want := range c.complete.Objects {
		if last.Status == 404 {
			want = 0
		}
		c.count(l.id, []*Record{last, l.holds}, key, l.holds.Objects[key], want, want)
	}
}

// checkCreated compares the number of creations with the number of provisionings. One that was cancelled may have created some of the objects.
func (c *checker) checkCreated(orders, complete int) {
	if c.created == nil || c.complete == nil {
		return
	}
	for key, n := range c.complete.Objects {
		c.count("all", []*Record{c.created}, key, c.created.Objects[key], n*complete, n*orders)
	}
}

func (c *checker) count(instance string, records []*Record, key string, got, least, most int) {
	if got > most {
		c.Doubled += got - most
		c.violate(NotDoubled, instance, records, "%d of %s, want %d", got, key, most)
	}
	if got < least {
		c.Missing += least - got
		c.violate(NotMissing, instance, records, "%d of %s, want %d", got, key, least)
	}
}

// checkFacts checks the rule Gapless for the operations that the ledger has.
func (c *checker) checkFacts(l *life) {
	for _, op := range slices.Sorted(maps.Keys(l.transitions)) {
		facts := slices.SortedStableFunc(slices.Values(l.facts[op]), func(a, b *Record) int { return cmp.Compare(a.Cursor, b.Cursor) })
		has := map[int64]bool{}
		var end *Record
		for i, f := range facts {
			has[f.Cursor] = true
			switch {
			case end != nil && f.Cursor > end.Cursor, end != nil && f.Type != end.Type && isEnd(f.Type):
				c.violate(Gapless, l.id, []*Record{end, f}, "operation %s has a fact after its end", op)
			case isEnd(f.Type):
				end = f
			case i > 0 && f.Type == FactStarted && facts[0].Cursor != f.Cursor:
				c.violate(Gapless, l.id, []*Record{f}, "operation %s started after another fact", op)
			}
		}
		for _, t := range l.transitions[op] {
			if !has[t.Cursor] {
				c.violate(Gapless, l.id, []*Record{t}, "operation %s has no fact for cursor %d", op, t.Cursor)
			}
		}
		polled := c.ends[op]
		switch {
		case len(facts) == 0: // every transition is reported
		case end == nil:
			c.violate(Gapless, l.id, facts[len(facts)-1:], "operation %s has no fact about its end", op)
		case facts[0].Type != FactStarted && facts[0] != end:
			c.violate(Gapless, l.id, facts[:1], "operation %s has no fact about its start", op)
		case polled != nil && polled.State == Succeeded && end.Type != FactSucceeded:
			c.violate(Gapless, l.id, []*Record{polled, end}, "operation %s has another end in its facts", op)
		}
	}
	for _, r := range l.invocations {
		// A history without a ledger has no transitions at all.
		if c.Transitions > 0 && r.isAccepted() && c.accepted[r.Operation] == r && l.transitions[r.Operation] == nil {
			c.violate(Gapless, l.id, []*Record{r}, "the ledger has no transition of operation %s", r.Operation)
		}
	}
}

func isEnd(t string) bool { return t == FactSucceeded || t == FactFailed || t == FactCancelled }
