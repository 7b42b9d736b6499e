package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// bury stores a dead letter as a consumer does.
func (s *system) bury(stream event.Stream, subject, data string, header map[string]string) uint64 {
	s.t.Helper()
	m := &nats.Msg{Subject: event.DeadSubject(stream), Data: []byte(data), Header: nats.Header{}}
	m.Header.Set(bus.HeaderDeadSubject, subject)
	m.Header.Set(bus.HeaderDeadConsumer, "orchestrator")
	m.Header.Set(bus.HeaderDeadReason, "password%3Dhunter2 is wrong")
	for name, value := range header {
		m.Header.Set(name, value)
	}
	ack, err := s.bus.JetStream().PublishMsg(s.t.Context(), m)
	require.NoError(s.t, err)
	return ack.Sequence
}

func (s *system) deadLetters(query string) (list operator.DeadLetterList) {
	s.t.Helper()
	s.get("/dead-letters?"+query, &list)
	return list
}

// eventHeader returns the headers of an event of an operation.
func eventHeader(kind event.Type, id, operation string) map[string]string {
	return map[string]string{
		"ce-specversion": "1.0", "ce-type": string(kind), "ce-id": id, "ce-source": event.WorkerSource("alpha"), "ce-subject": operation,
	}
}

func TestDeadLetters_Redrive_PublishesOnceAndOnlySafely(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.orchestrator()
	if got := s.deadLetters(""); got.TotalCount != 0 || len(got.Data) != 0 {
		t.Fatalf("before: %+v", got)
	}
	// alpha is missing: its command stays in flight. The worker of another team has set the command aside, and a result is unreadable.
	op := operation(event.Update, "i-1", "azure")
	s.request(op)
	s.count("state = 'in progress'", 1)
	var cursor int64
	require.NoError(t, s.db.Get(&cursor, `SELECT cursor FROM orchestrator.operations`))
	command := func(cursor int64) map[string]string {
		return eventHeader(event.TypeStepExecute, event.CommandID(op.ID, cursor), op.ID)
	}
	subject := event.CommandSubject("alpha", "Change")
	current := s.bury(event.StreamCommands, subject, `{"step":"Forged","details":{"x":{"clientSecret":"CANARY","n":1}},"cookie":"CANARY","kubeconfig":{"users":["CANARY"]},"note":"token=CANARY"}`, command(cursor))
	old := s.bury(event.StreamCommands, subject, `{}`, command(cursor-1))
	forged := s.bury(event.StreamResults, "keb.request.provision", `{}`, nil)
	cut := s.bury(event.StreamResults, event.ResultSubject("alpha", "Change"), `{}`, map[string]string{bus.HeaderDeadSize: "1048577"})
	binary := s.bury(event.StreamResults, event.ResultSubject("alpha", "Change"), "\x00\xff", map[string]string{"Authorization": "CANARY"})

	var pages []uint64
	for before := uint64(0); ; {
		query := "page_size=2"
		if before > 0 {
			query += fmt.Sprintf("&before=%d", before)
		}
		page := s.deadLetters(query)
		if page.TotalCount != 5 {
			t.Errorf("%d dead letters, want 5", page.TotalCount)
		}
		for i := range page.Data {
			pages = append(pages, page.Data[i].ID)
		}
		if before = page.NextBefore; before == 0 {
			break
		}
	}
	if fmt.Sprint(pages) != fmt.Sprint([]uint64{binary, cut, forged, old, current}) {
		t.Errorf("pages: %v", pages)
	}
	path := func(seq uint64) string { return fmt.Sprintf("/dead-letters/%d", seq) }
	for seq, want := range map[uint64]string{current: `"clientSecret": "[redacted]"`, binary: ""} {
		code, answer := s.do(http.MethodGet, path(seq), nil)
		var detail operator.DeadLetterDetail
		require.NoError(t, json.Unmarshal([]byte(answer), &detail))
		if code != http.StatusOK || strings.Contains(answer, "CANARY") || strings.Contains(answer, "hunter2") || !strings.Contains(detail.Payload, want) {
			t.Errorf("%d: %d %s", seq, code, answer)
		}
	}
	var detail operator.DeadLetterDetail
	s.get(path(current), &detail)
	if detail.Operation != op.ID || !detail.Redrivable || detail.Size == 0 || detail.Subject != subject || detail.EventID != event.CommandID(op.ID, cursor) {
		t.Errorf("the command: %+v", detail)
	}

	// What is unsafe or pointless is refused, and stays.
	refuse := func(seq uint64, want string) {
		t.Helper()
		if code, answer := s.do(http.MethodPost, path(seq)+"/redrive", nil); code != http.StatusConflict || !strings.Contains(answer, want) {
			t.Errorf("redrive of %d: %d %s, want %q", seq, code, answer, want)
		}
	}
	refuse(old, "no longer awaits")
	refuse(forged, "is not a subject of the stream")
	refuse(cut, "only a part")
	refuse(current, "no live worker alpha")
	s.worker("alpha")
	testkit.Eventually(t, patience, "the worker is known", func() bool {
		var workers operator.List[operator.Worker]
		s.get("/workers", &workers)
		return len(workers.Data) > 0 && workers.Data[0].Alive
	})
	s.await(op, event.Succeeded)
	refuse(current, "no longer awaits")

	// A dead letter is redriven once: the result becomes a new dead letter, because it is still unreadable.
	if code, answer := s.do(http.MethodPost, path(binary)+"/redrive", nil); code != http.StatusNoContent {
		t.Fatalf("redrive: %d %s", code, answer)
	}
	if code, _ := s.do(http.MethodPost, path(binary)+"/redrive", nil); code != http.StatusNotFound {
		t.Errorf("the second redrive: %d", code)
	}
	testkit.Eventually(t, patience, "the result is set aside again", func() bool {
		got := s.deadLetters("page_size=1")
		return got.TotalCount == 5 && got.Data[0].ID > binary && got.Data[0].Subject == event.ResultSubject("alpha", "Change")
	})
	if code, _ := s.do(http.MethodDelete, path(old), nil); code != http.StatusNoContent {
		t.Errorf("drop: %d", code)
	}
	if code, _ := s.do(http.MethodDelete, path(old), nil); code != http.StatusNotFound {
		t.Errorf("the second drop: %d", code)
	}
	var actions operator.List[operator.Action]
	s.get("/actions?action=redrive_dead_letter", &actions)
	if actions.TotalCount != 7 || actions.Data[0].Detail != "" && actions.Data[0].Outcome != "refused" {
		t.Errorf("%d redrives are recorded: %+v", actions.TotalCount, actions.Data)
	}
}

// While the operation awaits the command, it sends it again with its own data.
func TestDeadLetters_RedriveOfCommand_SendsIt(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.orchestrator()
	s.worker("alpha")
	got := make(chan string, 10)
	hold := make(chan struct{})
	defer close(hold)
	s.script.set("Change", hangs(got, hold))
	op := operation(event.Update, "i-1", "azure")
	s.request(op)
	<-got
	var cursor int64
	require.NoError(t, s.db.Get(&cursor, `SELECT cursor FROM orchestrator.operations`))
	seq := s.bury(event.StreamCommands, event.CommandSubject("beta", "Second"), `{"forged":true}`, eventHeader(event.TypeStepExecute, event.CommandID(op.ID, cursor), op.ID))
	info := func() uint64 {
		stream, err := s.bus.JetStream().Stream(t.Context(), string(event.StreamCommands))
		require.NoError(t, err)
		return stream.CachedInfo().State.LastSeq
	}
	before := info()
	if code, answer := s.do(http.MethodPost, fmt.Sprintf("/dead-letters/%d/redrive", seq), nil); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, answer)
	}
	if info() == before || s.deadLetters("").TotalCount != 0 {
		t.Errorf("the command was not sent again, or the dead letter stays: %+v", s.deadLetters(""))
	}
	var dispatch int
	require.NoError(t, s.db.Get(&dispatch, `SELECT dispatch FROM orchestrator.operations`))
	if dispatch != 2 {
		t.Errorf("the dispatch number is %d, want 2", dispatch)
	}
}

// hangs is a step that reports its operation and waits.
func hangs(started chan<- string, until <-chan struct{}) behaviour {
	return func(ctx context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		started <- op.ID
		select {
		case <-until:
		case <-ctx.Done():
		}
		return op, 0, nil
	}
}
