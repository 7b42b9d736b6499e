package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Schema is the JSON Schema of a request body. A simulator embeds it as a file. It is written from the contract of the real system and not
// from a client's types: all members, the required ones, their types and values. "additionalProperties": false rejects unknown
// members.
type Schema struct{ compiled *jsonschema.Schema }

// MustSchema compiles a schema that is part of the program. It panics if the schema is invalid.
func MustSchema(document []byte) *Schema {
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		panic(fmt.Sprintf("contract: schema is not JSON: %v", err))
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("request.json", content); err != nil {
		panic(fmt.Sprintf("contract: add schema: %v", err))
	}
	compiled, err := compiler.Compile("request.json")
	if err != nil {
		panic(fmt.Sprintf("contract: compile schema: %v", err))
	}
	return &Schema{compiled: compiled}
}

// Decode decodes a JSON body of at most MaxBody bytes that must match the schema into v. Another Content-Type is also a violation.
func (s *Schema) Decode(r *http.Request, v any) error {
	if err := ContentType(r, "application/json"); err != nil {
		return err
	}
	body, err := s.Body(r, MaxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("decode body: %w", err)
	}
	return nil
}

// Read is Decode, but answers an invalid request with 400 and returns false.
func (s *Schema) Read(w http.ResponseWriter, r *http.Request, v any) bool {
	err := s.Decode(r, v)
	if err != nil {
		Error(w, http.StatusBadRequest, "%v", err)
	}
	return err == nil
}

// Body reads a JSON body of at most limit bytes that must match the schema. Names of members are case-sensitive. A body that does not match
// is a violation; the error lists all problems.
func (s *Schema) Body(r *http.Request, limit int64) ([]byte, error) {
	body, err := Body(r, limit)
	if err != nil {
		if errors.Is(err, ErrTooLarge) {
			Violation(r, "body: larger than %d bytes", limit)
		}
		return nil, err
	}
	if err := s.Check(body); err != nil {
		Violation(r, "%v", err)
		return nil, err
	}
	return body, nil
}

// Check reports all problems of a JSON body.
func (s *Schema) Check(body []byte) error {
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return errors.New("body: not one JSON value")
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](s.compiled.Validate(content))
	if !ok {
		return nil
	}
	var problems []string
	collect(invalid, &problems)
	slices.Sort(problems)
	return errors.New(strings.Join(slices.Compact(problems), "; "))
}

func collect(e *jsonschema.ValidationError, into *[]string) {
	for _, cause := range e.Causes {
		collect(cause, into)
	}
	if len(e.Causes) > 0 {
		return
	}
	where := "body"
	if len(e.InstanceLocation) > 0 {
		where = strings.Join(e.InstanceLocation, ".")
	}
	*into = append(*into, where+": "+describe(e.ErrorKind))
}

// describe returns the requirement of a keyword, without the invalid value.
func describe(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Required:
		return "required: " + strings.Join(k.Missing, ", ")
	case *kind.AdditionalProperties:
		return "unknown: " + strings.Join(k.Properties, ", ")
	case *kind.Type:
		return "must be " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.Enum:
		return fmt.Sprintf("must be one of %v", k.Want)
	case *kind.Const:
		return fmt.Sprintf("must be %v", k.Want)
	case *kind.Pattern:
		return "must match " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	}
	return "does not meet " + strings.Join(k.KeywordPath(), "/")
}

// Query rejects unknown and repeated query parameters, and records a violation.
func Query(r *http.Request, allowed ...string) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		Violation(r, "query: not readable")
		return errors.New("query: not readable")
	}
	var problems []string
	for name, given := range values {
		switch {
		case !slices.Contains(allowed, name):
			problems = append(problems, "query parameter "+name+": unknown")
		case len(given) > 1:
			problems = append(problems, "query parameter "+name+": given more than once")
		}
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	text := strings.Join(problems, "; ")
	Violation(r, "%s", text)
	return errors.New(text)
}

// ContentType checks the media type of r's body, without parameters such as the charset. Another one is a violation.
func ContentType(r *http.Request, want string) error {
	got, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(got), want) {
		return nil
	}
	Violation(r, "header Content-Type: must be %s", want)
	return fmt.Errorf("header Content-Type: must be %s", want)
}
