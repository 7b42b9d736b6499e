package catalog

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Problem describes an invalid member of an order. It never contains the member's value, which may be a secret.
type Problem struct {
	// Pointer is the JSON pointer of the member within the order's parameters; "" is the whole object.
	Pointer string
	// Text describes what is allowed.
	Text string
}

// Error returns a message for the platform's user.
func (p *Problem) Error() string {
	if p.Pointer == "" {
		return "parameters " + p.Text
	}
	return "parameters" + p.Pointer + " " + p.Text
}

func problem(pointer, format string, args ...any) *Problem {
	return &Problem{Pointer: pointer, Text: fmt.Sprintf(format, args...)}
}

// schemaProblems converts schema validation errors to problems, sorted by pointer.
func schemaProblems(err error) error {
	v, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	var found []*Problem
	collect(v, &found)
	sort.SliceStable(found, func(i, j int) bool { return found[i].Pointer < found[j].Pointer })
	errs := make(Problems, len(found))
	copy(errs, found)
	return errs
}

// Problems are all problems of an order.
type Problems []*Problem

// Error joins the problems with semicolons.
func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

func collect(v *jsonschema.ValidationError, into *[]*Problem) {
	if len(v.Causes) > 0 {
		for _, c := range v.Causes {
			collect(c, into)
		}
		return
	}
	pointer := pointerOf(v.InstanceLocation)
	if r, ok := v.ErrorKind.(*kind.Required); ok {
		for _, name := range r.Missing {
			*into = append(*into, problem(pointer+pointerOf([]string{name}), "is required"))
		}
		return
	}
	*into = append(*into, problem(pointer, "%s", allowed(v.ErrorKind)))
}

// allowed describes the values that a keyword allows. It omits the actual value, which may be a secret.
func allowed(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Enum:
		values := make([]string, len(k.Want))
		for i, v := range k.Want {
			values[i] = fmt.Sprint(v)
		}
		return "must be one of " + strings.Join(values, ", ")
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.Pattern:
		return "must match " + k.Want
	}
	return "breaks the rule " + strings.Join(k.KeywordPath(), "/")
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

func pointerOf(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(pointerEscape.Replace(token))
	}
	return b.String()
}
