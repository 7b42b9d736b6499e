package event_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestContract_EveryType_IsListedOnce(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "type.go", nil, 0)
	require.NoError(t, err)
	declared := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Type" {
			declared[strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)] = true
		}
		return true
	})
	listed := map[string]bool{}
	for _, e := range event.Contract() {
		if listed[string(e.Type)] {
			t.Errorf("%s is listed twice", e.Type)
		}
		listed[string(e.Type)] = true
		if got := reflect.TypeOf(e.Payload).Name(); got != e.Name {
			t.Errorf("%s is listed as %s with payload %s", e.Type, e.Name, got)
		}
		if reflect.TypeOf(testkit.Payloads()[e.Type]) != reflect.TypeOf(e.Payload) {
			t.Errorf("%s has no example payload", e.Type)
		}
		if e.Summary == "" || e.Direction == "" {
			t.Errorf("%s lacks a summary or a direction", e.Type)
		}
	}
	if diff := cmp.Diff(declared, listed); diff != "" {
		t.Errorf("types (-declared +listed):\n%s", diff)
	}
}

func TestContract_Subjects_BelongToTheirStreams(t *testing.T) {
	t.Parallel()
	build := map[event.Stream]func(event.Type) string{
		event.StreamRequests: func(event.Type) string { return event.RequestSubject("{operationType}") },
		event.StreamCommands: func(event.Type) string { return event.CommandSubject("{worker}", "{step}") },
		event.StreamResults:  func(event.Type) string { return event.ResultSubject("{worker}", "{step}") },
		event.StreamFacts:    func(t event.Type) string { return event.FactSubject("{operationType}", t) },
	}
	for _, e := range event.Contract() {
		if got := build[e.Stream](e.Type); got != e.Subject {
			t.Errorf("%s is published on %s, the contract says %s", e.Type, got, e.Subject)
		}
	}
}
