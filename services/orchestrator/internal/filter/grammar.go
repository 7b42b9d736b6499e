package filter

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// conjunction is a list of conditions that must all match. AND may be omitted.
type conjunction struct {
	Pos   lexer.Position
	Parts []*disjunction `parser:"@@ ( And? @@ )*"`
}

// disjunction is a list of alternatives. OR binds tighter than AND.
type disjunction struct {
	Parts []*negation `parser:"@@ ( Or @@ )*"`
}

type negation struct {
	Negated    bool         `parser:"@Not?"`
	Group      *conjunction `parser:"( Open @@ Close"`
	Comparison *comparison  `parser:"| @@ )"`
}

// comparison compares a field with a value, or with alternatives.
type comparison struct {
	Pos      lexer.Position
	Field    string   `parser:"@Word"`
	Operator string   `parser:"@Operator"`
	Values   []*value `parser:"( Open @@ ( Or @@ )* Close | @@ )"`
}

type value struct {
	Pos  lexer.Position
	Text string `parser:"@( String | Time | Word )"`
}

// words separates a filter into tokens. A word may contain hyphens and dots, because names of regions, UUIDs and durations do.
var words = lexer.MustSimple([]lexer.SimpleRule{
	{Name: "Space", Pattern: `\s+`},
	{Name: "String", Pattern: `"(\\.|[^"\\])*"|'(\\.|[^'\\])*'`},
	{Name: "Operator", Pattern: `!=|<=|>=|[=<>:]`},
	{Name: "Open", Pattern: `\(`},
	{Name: "Close", Pattern: `\)`},
	{Name: "And", Pattern: `AND\b`},
	{Name: "Or", Pattern: `OR\b`},
	{Name: "Not", Pattern: `NOT\b|-`},
	{Name: "Time", Pattern: `\d{4}-\d{2}-\d{2}T[\d:.]+(Z|[+-]\d{2}:\d{2})`},
	{Name: "Word", Pattern: `[^\s"'()=<>!:]+`},
})

var grammar = participle.MustBuild[conjunction](participle.Lexer(words), participle.Elide("Space"), participle.Unquote("String"))

// hint describes the form of a filter.
const hint = "compare a field with a value, such as state = failed; combine comparisons with AND, OR, NOT and parentheses; quote values with spaces"

// parse returns the tree of a text.
func parse(text string) (*conjunction, error) {
	tree, err := grammar.ParseString("", text)
	if err == nil {
		return tree, nil
	}
	at := lexer.Position{Offset: len(text)}
	if e, ok := errors.AsType[participle.Error](err); ok {
		at = e.Position()
	}
	rest := text[min(at.Offset, len(text)):]
	if rest == "" {
		return nil, fmt.Errorf("at character %d: the filter is not complete: %s", character(text, at), hint)
	}
	return nil, fmt.Errorf("at character %d: %.20q is not expected: %s", character(text, at), rest, hint)
}

// character returns the number of the character at a position, from 1.
func character(text string, at lexer.Position) int {
	return utf8.RuneCountInString(text[:min(at.Offset, len(text))]) + 1
}
