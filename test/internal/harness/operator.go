package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/testkit"
)

// Operation is an operation with its stages and its history.
type Operation struct{ operator.OperationDetail }

// At is a step of the operation by its name.
func (o *Operation) At(t testing.TB, name string) operator.Step {
	t.Helper()
	for _, stage := range o.Stages {
		for _, step := range stage.Steps {
			if step.Name == name {
				return step
			}
		}
	}
	t.Fatalf("operation %s has no step %s", o.ID, name)
	return operator.Step{}
}

// Outcomes are the outcomes of a step in the history, in order; one for each try.
func (o *Operation) Outcomes(step string) []string {
	var outcomes []string
	for _, entry := range o.History {
		if entry.Step == step {
			outcomes = append(outcomes, slices.Repeat([]string{entry.Outcome}, entry.Tries)...)
		}
	}
	return outcomes
}

// FirstStart is the start of the first try of a line.
func FirstStart(line operator.HistoryLine) time.Time {
	if line.First != nil {
		return line.First.StartedAt
	}
	return line.StartedAt
}

// RanAgain names what the history must not show: that something of a stage ran after a later stage had begun, or
// that a transition happened twice. Empty is good.
func (o *Operation) RanAgain() []string {
	place := map[string]int{}
	for i, stage := range o.Stages {
		place[stage.Name] = i
	}
	var problems []string
	reached, cursor := 0, int64(-1)
	for _, entry := range o.History {
		if entry.Cursor <= cursor {
			problems = append(problems, fmt.Sprintf("cursor %d of %s comes after %d", entry.Cursor, entry.Step, cursor))
		}
		cursor = entry.Cursor
		if entry.Stage == "" {
			continue
		}
		at, known := place[entry.Stage]
		if !known || at < reached {
			problems = append(problems, fmt.Sprintf("%s of stage %s (%s) came after stage %s", entry.Step, entry.Stage,
				entry.Outcome, o.Stages[reached].Name))
			continue
		}
		reached = at
	}
	return problems
}

// Operations are the newest operations, at most 1000, without stages and history.
func (s *System) Operations() []Operation {
	s.t.Helper()
	return Get[operator.List[Operation]](s, "http://"+s.OperatorAddr+"/operations?page_size=1000").Data
}

// OperationCount is how many operations there are.
func (s *System) OperationCount() int {
	s.t.Helper()
	return Get[operator.OperationList](s, "http://"+s.OperatorAddr+"/operations?page_size=1").TotalCount
}

// Operation is one operation with its stages and history.
func (s *System) Operation(id string) *Operation {
	s.t.Helper()
	return new(Get[Operation](s, "http://"+s.OperatorAddr+"/operations/"+id))
}

// Await waits until an operation is as the test wants it.
func (s *System) Await(id string, within time.Duration, what string, ok func(*Operation) bool) *Operation {
	s.t.Helper()
	var op *Operation
	testkit.Eventually(s.t, within, what, func() bool {
		// The broker has accepted it; the orchestrator takes it from the bus a moment later.
		body, status, err := s.get("http://" + s.OperatorAddr + "/operations/" + id)
		op = &Operation{}
		return err == nil && status == http.StatusOK && json.Unmarshal(body, op) == nil && ok(op)
	})
	return op
}

// AwaitEnd waits until an operation has ended and fails the test unless it is in that state.
func (s *System) AwaitEnd(id, state string, within time.Duration) *Operation {
	s.t.Helper()
	op := s.Await(id, within, "the end of operation "+id, (*Operation).Final)
	if string(op.State) != state {
		s.t.Fatalf("%s %s is %s with error %+v; want %s", op.Type, id, op.State, op.Error, state)
	}
	return op
}

// Get reads JSON and fails the test if there is none.
func Get[T any](s *System, url string) T {
	s.t.Helper()
	var into T
	body, status, err := s.get(url)
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal(body, &into)
	}
	if err != nil || status != http.StatusOK {
		s.t.Fatalf("GET %s: status %d, %v: %s", url, status, err, body)
	}
	return into
}

func (s *System) get(url string) (body []byte, status int, err error) {
	return s.call(http.MethodGet, url, "")
}

func (s *System) call(method, url, content string) (body []byte, status int, err error) {
	request, err := http.NewRequest(method, url, strings.NewReader(content))
	if err != nil {
		return nil, 0, err
	}
	response, err := s.HTTP.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return body, response.StatusCode, err
}
