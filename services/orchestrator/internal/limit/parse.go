package limit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/event"
)

// MaxDocument is the maximum size of a document in bytes.
const MaxDocument = 256 << 10

const (
	maxLimits = 200
	maxValues = 1000
	maxBound  = 1_000_000
	maxRate   = 10_000
	maxWeight = 1000
	maxText   = 200
)

// Parse parses a document in YAML. The error names the line and the field of every problem. A document without limits is valid.
func Parse(document []byte) (*Set, error) {
	if len(document) > MaxDocument {
		return nil, fmt.Errorf("the document has %d bytes: at most %d are allowed", len(document), MaxDocument)
	}
	var root, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return &Set{}, nil
	case err != nil:
		return nil, fmt.Errorf("not YAML: %s", strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: "))
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be exactly one YAML document")
	}
	p := &parser{}
	set := p.document(node{Node: root.Content[0], p: p})
	if err := errors.Join(p.problems...); err != nil {
		return nil, err
	}
	return set, nil
}

// parser collects problems.
type parser struct{ problems []error }

// node is a YAML node with its path in the document, for example limits[0].scope.
type node struct {
	*yaml.Node
	path string
	p    *parser
}

func (n node) problem(format string, args ...any) {
	where := fmt.Sprintf("line %d: ", n.Line)
	if n.path != "" {
		where += n.path + ": "
	}
	n.p.problems = append(n.p.problems, fmt.Errorf(where+format, args...))
}

// pair is a key of a mapping with its value.
type pair struct {
	key   string
	value node
}

// pairs reads a mapping; the keys are unique.
func (n node) pairs() []pair {
	if n.Kind != yaml.MappingNode {
		n.problem("must be a mapping")
		return nil
	}
	var pairs []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := node{Node: n.Content[i], path: n.path, p: n.p}
		switch {
		case key.Kind != yaml.ScalarNode:
			key.problem("a key must be a text")
		case slices.ContainsFunc(pairs, func(p pair) bool { return p.key == key.Value }):
			key.problem("the key %.50q is duplicated", key.Value)
		default:
			pairs = append(pairs, pair{key.Value, node{Node: n.Content[i+1], path: strings.TrimPrefix(n.path+"."+key.Value, "."), p: n.p}})
		}
	}
	return pairs
}

// object reads a mapping with the allowed keys.
func (n node) object(allowed ...string) map[string]node {
	fields := map[string]node{}
	for _, f := range n.pairs() {
		if !slices.Contains(allowed, f.key) {
			n.p.problems = append(n.p.problems, fmt.Errorf("line %d: %.100s: unknown; allowed are %s", f.value.Line, f.value.path, strings.Join(allowed, ", ")))
			continue
		}
		fields[f.key] = f.value
	}
	return fields
}

// text reads a printable text.
func (n node) text() (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" || len(n.Value) > maxText || !utf8.ValidString(n.Value) ||
		strings.ContainsFunc(n.Value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		n.problem("must be a text of 1 to %d printable bytes", maxText)
		return "", false
	}
	return n.Value, true
}

// texts reads one text, or a list of different ones.
func (n node) texts() []string {
	if n.Kind != yaml.SequenceNode {
		if v, ok := n.text(); ok {
			return []string{v}
		}
		return nil
	}
	if len(n.Content) == 0 || len(n.Content) > maxValues {
		n.problem("must have 1 to %d values", maxValues)
		return nil
	}
	var values []string
	for i, c := range n.Content {
		item := node{Node: c, path: fmt.Sprintf("%s[%d]", n.path, i), p: n.p}
		v, ok := item.text()
		switch {
		case !ok:
		case slices.Contains(values, v):
			item.problem("%q is duplicated", v)
		default:
			values = append(values, v)
		}
	}
	return values
}

// bound reads a whole number that is positive.
func (n node) bound() int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < 1 || v > maxBound {
		n.problem("must be a whole number from 1 to %d; a hold stops everything in a scope", maxBound)
		return 0
	}
	return v
}

var ratePattern = regexp.MustCompile(`^([0-9]{1,5})/(s|m)$`)

func (n node) rate() Rate {
	m := ratePattern.FindStringSubmatch(n.Value)
	if n.Kind == yaml.ScalarNode && m != nil {
		if v, err := strconv.Atoi(m[1]); err == nil && v >= 1 && v <= maxRate {
			return Rate{Commands: v, Per: map[string]time.Duration{"s": time.Second, "m": time.Minute}[m[2]]}
		}
	}
	n.problem("must be 1 to %d commands per second or minute, for example 5/s or 300/m", maxRate)
	return Rate{}
}

func (p *parser) document(n node) *Set {
	set := &Set{}
	fields := n.object("limits", "weights")
	if list, ok := fields["limits"]; ok {
		set.Limits = p.limits(list)
	}
	if weights, ok := fields["weights"]; ok {
		set.Weights = map[string]float64{}
		for _, w := range weights.pairs() {
			v, err := strconv.ParseFloat(w.value.Value, 64)
			if w.value.Kind != yaml.ScalarNode || err != nil || !(v >= 1.0/maxWeight && v <= maxWeight) { // NaN is in no range
				w.value.problem("must be a number from %g to %d", 1.0/maxWeight, maxWeight)
				continue
			}
			set.Weights[w.key] = v
		}
	}
	return set
}

func (p *parser) limits(n node) []Limit {
	if n.Kind != yaml.SequenceNode || len(n.Content) > maxLimits {
		n.problem("must be a list of at most %d limits", maxLimits)
		return nil
	}
	limits := make([]Limit, 0, len(n.Content))
	for i, c := range n.Content {
		item := node{Node: c, path: fmt.Sprintf("%s[%d]", n.path, i), p: p}
		l := p.limit(item)
		if l.Name != "" && slices.ContainsFunc(limits, func(other Limit) bool { return other.Name == l.Name }) {
			item.problem("the name %q is duplicated", l.Name)
		}
		limits = append(limits, l)
	}
	return limits
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (p *parser) limit(n node) (l Limit) {
	fields := n.object("name", "scope", "each", "commands", "rate", "operations")
	if fields == nil || n.Kind != yaml.MappingNode {
		return l
	}
	if name, ok := fields["name"]; !ok {
		n.problem("must have a name")
	} else if l.Name, ok = name.text(); ok && !namePattern.MatchString(l.Name) {
		name.problem("%.70q: must have 1 to 63 lower-case letters, digits and hyphens", l.Name)
	}
	if scope, ok := fields["scope"]; ok {
		l.Scope = p.scope(scope)
	}
	if each, ok := fields["each"]; ok {
		if l.Each = Member(each.Value); each.Kind != yaml.ScalarNode || !slices.Contains(Members(), l.Each) {
			each.problem("%.50q: allowed are %s", each.Value, names())
		}
	}
	if f, ok := fields["commands"]; ok {
		l.Commands = f.bound()
	}
	if f, ok := fields["rate"]; ok {
		l.Rate = f.rate()
	}
	f, bounded := fields["operations"]
	if bounded {
		l.Operations = f.bound()
		for _, m := range Members() {
			if m.ofCommand() && (len(l.Scope[m]) > 0 || l.Each == m) {
				f.problem("not allowed together with the member %s, which only commands have", m)
			}
		}
		for _, plan := range l.Scope[Plan] {
			if uuid.Validate(plan) == nil {
				f.problem("not allowed with the id %s of a plan; use the name of the plan", plan)
			}
		}
	}
	if _, commands := fields["commands"]; !commands && !bounded {
		if _, rate := fields["rate"]; !rate {
			n.problem("must have at least one of commands, rate and operations")
		}
	}
	return l
}

func (p *parser) scope(n node) Scope {
	s := Scope{}
	for name, f := range n.object(strings.Split(names(), ", ")...) {
		values := f.texts()
		if Member(name) == Type {
			for _, v := range values {
				if types := event.OperationTypes(); !slices.Contains(types, event.OperationType(v)) {
					f.problem("%.50q: allowed are %v", v, types)
				}
			}
		}
		s[Member(name)] = values
	}
	return s
}

// names returns the names of the members, separated by commas.
func names() string {
	var all []string
	for _, m := range Members() {
		all = append(all, string(m))
	}
	return strings.Join(all, ", ")
}
