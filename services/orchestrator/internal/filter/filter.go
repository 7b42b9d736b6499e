// Package filter reads the filter language of lists of operations. It is the language of https://google.aip.dev/160 with comparisons of
// declared fields, and without functions.
package filter

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/api/operator"
)

const (
	// MaxLength limits a filter, in bytes.
	MaxLength = 2000
	// maxDepth limits nested parentheses, and maxValues the values that are compared with fields.
	maxDepth  = 10
	maxValues = 100
	// maxNumber limits a number, and maxDuration a duration.
	maxNumber   = 1_000_000
	maxDuration = 10 * 365 * 24 * time.Hour
)

// Operator is the operator of a comparison. A comparison with != is a Not of one with Equal.
type Operator string

// The operators.
const (
	Equal          Operator = "="
	Contains       Operator = ":"
	Less           Operator = "<"
	LessOrEqual    Operator = "<="
	Greater        Operator = ">"
	GreaterOrEqual Operator = ">="
	// Present is the comparison :* and has no value.
	Present Operator = ":*"
)

// notEqual is != in a text.
const notEqual = "!="

// Comparison compares a field with a value.
type Comparison struct {
	Field    operator.FilterField
	Operator Operator
	// Value is a string, a bool, an int, a time.Duration or a time.Time. A duration that is compared with a time is before now.
	Value any
}

// Text returns the value of a field whose values are texts.
func (c *Comparison) Text() string {
	text, _ := c.Value.(string)
	return text
}

// Expression is a condition. One of its fields is set.
type Expression struct {
	All, Any   []*Expression
	Not        *Expression
	Comparison *Comparison
}

// Comparisons returns the comparisons of an expression; none if it is nil.
func (e *Expression) Comparisons() iter.Seq[*Comparison] {
	return func(yield func(*Comparison) bool) { e.walk(yield) }
}

func (e *Expression) walk(yield func(*Comparison) bool) bool {
	switch {
	case e == nil:
		return true
	case e.Comparison != nil:
		return yield(e.Comparison)
	case e.Not != nil:
		return e.Not.walk(yield)
	}
	for _, part := range slices.Concat(e.All, e.Any) {
		if !part.walk(yield) {
			return false
		}
	}
	return true
}

// Parse reads a filter over fields. It returns nil for an empty one. An error names the character, and what is allowed there.
func Parse(text string, fields []operator.FilterField) (*Expression, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, nil
	case len(text) > MaxLength:
		return nil, fmt.Errorf("must have at most %d characters, not %d", MaxLength, len(text))
	case strings.Count(text, "(") > maxValues:
		return nil, fmt.Errorf("must have at most %d parentheses", maxValues)
	}
	tree, err := parse(text)
	if err != nil {
		return nil, err
	}
	return (&checker{text: text, fields: fields}).all(tree, 0)
}

// checker converts a tree to an expression over known fields.
type checker struct {
	text   string
	fields []operator.FilterField
	values int
}

func (c *checker) all(n *conjunction, depth int) (*Expression, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("at character %d: parentheses must be nested at most %d deep", character(c.text, n.Pos), maxDepth)
	}
	e := &Expression{}
	for _, part := range n.Parts {
		some, err := c.any(part, depth)
		if err != nil {
			return nil, err
		}
		e.All = append(e.All, some)
	}
	if len(e.All) == 1 {
		return e.All[0], nil
	}
	return e, nil
}

func (c *checker) any(n *disjunction, depth int) (*Expression, error) {
	e := &Expression{}
	for _, part := range n.Parts {
		one, err := c.negation(part, depth)
		if err != nil {
			return nil, err
		}
		e.Any = append(e.Any, one)
	}
	if len(e.Any) == 1 {
		return e.Any[0], nil
	}
	return e, nil
}

func (c *checker) negation(n *negation, depth int) (e *Expression, err error) {
	if n.Group != nil {
		e, err = c.all(n.Group, depth+1)
	} else {
		e, err = c.comparison(n.Comparison)
	}
	if err == nil && n.Negated {
		e = &Expression{Not: e}
	}
	return e, err
}

func (c *checker) comparison(n *comparison) (*Expression, error) {
	wrong := func(text string, args ...any) error {
		return fmt.Errorf("at character %d: "+text, append([]any{character(c.text, n.Pos)}, args...)...)
	}
	i := slices.IndexFunc(c.fields, func(f operator.FilterField) bool { return f.Name == n.Field })
	if i < 0 {
		return nil, wrong("unknown field %.50q: allowed are %s", n.Field, strings.Join(c.names(), ", "))
	}
	field := c.fields[i]
	if allowed := operators(field.Kind); !slices.Contains(allowed, n.Operator) {
		return nil, wrong("%s cannot be compared with %s: allowed are %s", field.Name, n.Operator, strings.Join(allowed, ", "))
	}
	e := &Expression{}
	for _, v := range n.Values {
		if c.values++; c.values > maxValues {
			return nil, wrong("must have at most %d values", maxValues)
		}
		one, err := convert(&field, n.Operator, v.Text)
		if err != nil {
			return nil, fmt.Errorf("at character %d: %s %.50q: %w", character(c.text, v.Pos), field.Name, v.Text, err)
		}
		e.Any = append(e.Any, &Expression{Comparison: one})
	}
	if len(e.Any) == 1 {
		e = e.Any[0]
	}
	if n.Operator == notEqual {
		e = &Expression{Not: e}
	}
	return e, nil
}

func (c *checker) names() []string {
	names := make([]string, len(c.fields))
	for i := range c.fields {
		names[i] = c.fields[i].Name
	}
	return names
}

// operators returns the operators of a kind.
func operators(kind operator.FilterKind) []string {
	ordered := []string{string(Less), string(LessOrEqual), string(Greater), string(GreaterOrEqual)}
	switch kind {
	case operator.FilterTime:
		return append(ordered, string(Contains))
	case operator.FilterDuration:
		return ordered
	case operator.FilterNumber:
		return append([]string{string(Equal), notEqual}, ordered...)
	}
	return []string{string(Equal), notEqual, string(Contains)}
}

// convert returns the comparison of a field with a value.
func convert(field *operator.FilterField, by, text string) (c *Comparison, err error) {
	c = &Comparison{Field: *field, Operator: Operator(by)}
	if by == notEqual {
		c.Operator = Equal
	}
	if c.Operator == Contains {
		switch {
		case text == "*" && slices.Contains([]operator.FilterKind{operator.FilterText, operator.FilterUUID, operator.FilterTime}, field.Kind):
			c.Operator = Present
			return c, nil
		case field.Kind == operator.FilterTime:
			return nil, errors.New("after : must be *")
		case field.Kind != operator.FilterText:
			c.Operator = Equal
		}
	}
	c.Value, err = convertValue(field, text)
	return c, err
}

func convertValue(field *operator.FilterField, text string) (any, error) {
	switch field.Kind {
	case operator.FilterChoice:
		if v, ok := operator.Spelled(strings.ReplaceAll(text, " ", "_"), underscored(field.Values)); ok {
			return field.Values[slices.Index(underscored(field.Values), v)], nil
		}
		return nil, fmt.Errorf("allowed are %s", strings.Join(underscored(field.Values), ", "))
	case operator.FilterUUID:
		id, err := uuid.Parse(text)
		if err != nil {
			return nil, errors.New("must be a UUID")
		}
		return id.String(), nil
	case operator.FilterFlag:
		if text != "true" && text != "false" {
			return nil, errors.New("must be true or false")
		}
		return text == "true", nil
	case operator.FilterNumber:
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxNumber {
			return nil, fmt.Errorf("must be a number from 0 to %d", maxNumber)
		}
		return n, nil
	case operator.FilterDuration:
		if d, ok := duration(text); ok {
			return d, nil
		}
		return nil, errors.New("must be a duration such as 20m")
	case operator.FilterTime:
		return moment(text)
	}
	if text == "" {
		return nil, errors.New("must not be empty")
	}
	return text, nil
}

// underscored returns values that need no quotes.
func underscored(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.ReplaceAll(v, " ", "_")
	}
	return out
}

func duration(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0 && d <= maxDuration
}

// moment returns a time, or a duration before now.
func moment(text string) (any, error) {
	if d, ok := duration(text); ok {
		return d, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil && at.Year() >= 1970 {
			return at.UTC(), nil
		}
	}
	return nil, errors.New("must be a time such as 2026-11-21T08:00:00Z or 2026-11-21, or a duration before now such as 2h")
}
