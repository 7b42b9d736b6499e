package render

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaURL is the internal name of the chart's schema; it is not fetched.
const schemaURL = "values.schema.json"

// ValuesError lists all values that the chart's schema rejects. It contains no value, because one may be a secret.
type ValuesError struct {
	// Problems are sorted by field.
	Problems []Problem
}

// Problem is a rejected value.
type Problem struct {
	// Field is the path of the value, for example manager.image.tag.
	Field string
	// Text describes the problem and the valid values.
	Text string
}

func (e *ValuesError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Field + ": " + p.Text
	}
	return "values: " + strings.Join(texts, "; ")
}

// valuesSchema validates values. A nil schema accepts all.
type valuesSchema struct{ compiled *jsonschema.Schema }

// compile compiles a JSON schema. Empty data results in nil.
func compile(data []byte) (*valuesSchema, error) {
	if len(data) == 0 {
		return nil, nil
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // a reference to another document is rejected, not fetched
	if err := c.AddResource(schemaURL, document); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, err
	}
	return &valuesSchema{compiled: compiled}, nil
}

func (s *valuesSchema) validate(values map[string]any) error {
	if s == nil {
		return nil
	}
	err := s.compiled.Validate(values)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return fmt.Errorf("values: %w", err)
	}
	var problems []Problem
	leaves(invalid, func(leaf *jsonschema.ValidationError) { problems = append(problems, explain(leaf)...) })
	slices.SortFunc(problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Text, b.Text)) })
	return &ValuesError{Problems: slices.Compact(problems)}
}

func leaves(e *jsonschema.ValidationError, found func(*jsonschema.ValidationError)) {
	if len(e.Causes) == 0 {
		found(e)
		return
	}
	for _, cause := range e.Causes {
		leaves(cause, found)
	}
}

// explain converts an error to problems. The library's messages would contain values.
func explain(e *jsonschema.ValidationError) []Problem {
	field := strings.Join(e.InstanceLocation, ".")
	each := func(keys []string, text string) []Problem {
		problems := make([]Problem, len(keys))
		for i, key := range keys {
			problems[i] = Problem{Field: join(field, key), Text: text}
		}
		return problems
	}
	text := ""
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return each(k.Properties, "the chart has no such value")
	case *kind.Required:
		return each(k.Missing, "is missing")
	case *kind.FalseSchema:
		text = "cannot be set here"
	case *kind.Type:
		text = fmt.Sprintf("is a %s, must be %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Pattern:
		text = "must match " + k.Want
	case *kind.Enum:
		text = fmt.Sprintf("must be one of %v", k.Want)
	case *kind.MinLength:
		text = fmt.Sprintf("is %d characters long, must be at least %d", k.Got, k.Want)
	case *kind.MaxLength:
		text = fmt.Sprintf("is %d characters long, must be at most %d", k.Got, k.Want)
	case *kind.Minimum:
		text = fmt.Sprintf("is %s, must be at least %s", k.Got.RatString(), k.Want.RatString())
	case *kind.Maximum:
		text = fmt.Sprintf("is %s, must be at most %s", k.Got.RatString(), k.Want.RatString())
	case *kind.UniqueItems:
		text = "has the same item twice"
	default:
		text = "does not fit the schema: " + strings.Join(e.ErrorKind.KeywordPath(), "/")
	}
	return []Problem{{Field: field, Text: text}}
}
