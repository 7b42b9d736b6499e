// Package limit bounds the commands and operations that are in progress at the
// same time, and the rate of commands. The limits are a document that operators
// change while the orchestrators run. Every orchestrator keeps it in memory and
// reads it again when another one reports a change, and regularly. Of the pending
// operations, those of customers start before upgrades of many runtimes, and global
// accounts take turns.
package limit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// Member is a property of an operation, or of its next command.
type Member string

// The members of a scope. A limit with each applies separately to each value of its member.
const (
	GlobalAccount Member = "globalAccount"
	Plan          Member = "plan"
	Region        Member = "region"
	Type          Member = "type"
	Step          Member = "step"
	Worker        Member = "worker"
	System        Member = "system"
)

// Members returns all members of a scope.
func Members() []Member { return []Member{GlobalAccount, Plan, Region, Type, Step, Worker, System} }

// ofCommand reports whether the member is a property of a command, which an operation that has not started does not have.
func (m Member) ofCommand() bool { return m == Step || m == Worker || m == System }

// Scope selects operations and their steps. An operation matches if, for each member, its value is one of the listed ones. The scope without
// members contains everything.
type Scope map[Member][]string

// Rate is a number of commands in a period; the zero value means that there is no bound.
type Rate struct {
	Commands int
	Per      time.Duration
}

// String returns the form in the document, for example 5/s; empty for the zero value.
func (r Rate) String() string {
	if r.Commands == 0 {
		return ""
	}
	unit := "s"
	if r.Per == time.Minute {
		unit = "m"
	}
	return strconv.Itoa(r.Commands) + "/" + unit
}

// Limit bounds what is in its scope. At least one of its three bounds is set.
type Limit struct {
	// Name is unique; it has lower-case letters, digits and hyphens.
	Name  string
	Scope Scope
	// Each, if set, makes the limit apply separately to each value of the member.
	Each Member
	// Commands is the maximum number of commands in flight, and Operations that of operations in progress; 0 means that there is no bound.
	Commands, Operations int
	// Rate bounds the commands that are sent; a command that is sent again after its limit does not count.
	Rate Rate
}

// BoundsCommands reports whether the limit applies to commands.
func (l *Limit) BoundsCommands() bool { return l.Commands > 0 || l.Rate.Commands > 0 }

// String describes the limit, for example "at most 10 commands in flight and 5/s for each globalAccount of worker ias".
func (l *Limit) String() string {
	var bounds []string
	if l.Commands > 0 {
		bounds = append(bounds, fmt.Sprintf("%d commands in flight", l.Commands))
	}
	if l.Rate.Commands > 0 {
		bounds = append(bounds, "a rate of "+l.Rate.String())
	}
	if l.Operations > 0 {
		bounds = append(bounds, fmt.Sprintf("%d operations in progress", l.Operations))
	}
	text := "at most " + strings.Join(bounds, " and ")
	if l.Each != "" {
		text += " for each " + string(l.Each)
	}
	if scope := l.Scope.String(); scope != "" {
		text += " of " + scope
	}
	return text
}

// String returns the members that are set, for example "worker ias, type provision or update".
func (s Scope) String() string {
	var parts []string
	for _, m := range Members() {
		if values := s[m]; len(values) > 0 {
			parts = append(parts, string(m)+" "+strings.Join(values, " or "))
		}
	}
	return strings.Join(parts, ", ")
}

// Set is a valid document. It is not modified.
type Set struct {
	// Limits are in the order of the document.
	Limits []Limit
	// Weights are the shares of global accounts; an account without an entry has 1.
	Weights map[string]float64
}

// Weight returns the share of a global account.
func (s *Set) Weight(globalAccount string) float64 { return cmp.Or(s.Weights[globalAccount], 1) }

// Key is a limit, with the value of its member each.
type Key struct {
	Limit *Limit
	// Value is empty for a limit without each, and for an operation without the member.
	Value string
}

// String identifies the key: the name of the limit, for example "ias", and the value of a limit with each, for example "ias/ga-1".
func (k Key) String() string {
	if k.Limit.Each == "" {
		return k.Limit.Name
	}
	return k.Limit.Name + "/" + k.Value
}

// NameOf returns the name of the limit in the text of a key.
func NameOf(key string) string {
	name, _, _ := strings.Cut(key, "/")
	return name
}

// OfCommand returns the limits of commands that the next command of an operation needs room in, in the order of the document.
func (s *Set) OfCommand(op *event.Operation, next *process.Step) []Key {
	return s.keys(op, next, (*Limit).BoundsCommands)
}

// OfOperation returns the limits of operations that an operation needs room in to start, in the order of the document.
func (s *Set) OfOperation(op *event.Operation) []Key {
	return s.keys(op, nil, func(l *Limit) bool { return l.Operations > 0 })
}

// BoundsOperations reports whether there is a limit of operations.
func (s *Set) BoundsOperations() bool {
	return slices.ContainsFunc(s.Limits, func(l Limit) bool { return l.Operations > 0 })
}

func (s *Set) keys(op *event.Operation, next *process.Step, bounds func(*Limit) bool) []Key {
	var keys []Key
	for i := range s.Limits {
		l := &s.Limits[i]
		if !bounds(l) || !l.Scope.contains(op, next) {
			continue
		}
		if l.Each == "" {
			keys = append(keys, Key{Limit: l})
			continue
		}
		for _, value := range valuesOf(l.Each, op, next) {
			keys = append(keys, Key{Limit: l, Value: value})
		}
	}
	return keys
}

func (s Scope) contains(op *event.Operation, next *process.Step) bool {
	for m, allowed := range s {
		values := valuesOf(m, op, next)
		if m == Plan {
			values = append(values, op.Plan.ID)
		}
		if !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(allowed, v) }) {
			return false
		}
	}
	return true
}

// valuesOf returns the values of a member. Only a step can have several, the systems that it calls.
func valuesOf(m Member, op *event.Operation, next *process.Step) []string {
	switch m {
	case GlobalAccount:
		return []string{op.Context.GlobalAccountID}
	case Plan:
		return []string{cmp.Or(op.Plan.Name, op.Plan.ID)}
	case Region:
		return []string{op.Runtime.Region}
	case Type:
		return []string{string(op.Type)}
	}
	switch {
	case next == nil:
		return nil
	case m == Step:
		return []string{next.Name}
	case m == Worker:
		return []string{next.Worker}
	}
	return next.CalledSystems()
}
