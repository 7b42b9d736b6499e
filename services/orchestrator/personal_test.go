package orchestrator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// by returns an operation that a user requested.
func by(user string, op event.Operation) event.Operation {
	op.Context.UserID = user
	return op
}

// users counts the requests of an instance that contain a user ID.
func (s *system) users(instance string) int {
	s.t.Helper()
	var n int
	if err := s.db.Get(&n, `
SELECT count(*) FROM orchestrator.requests r JOIN orchestrator.operations o ON o.id = r.operation_id
WHERE o.instance_id = $1 AND r.body::text LIKE '%@example.org%'`, instance); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *system) run(op event.Operation) {
	s.t.Helper()
	s.request(op)
	s.await(op, event.Succeeded)
}

func TestPersonalData_InstanceRemoved_IsDeleted(t *testing.T) {
	s := newSystem(t)
	s.start()
	for _, instance := range []string{"gone", "stays"} {
		s.run(by("me@example.org", operation(event.Provision, instance, "azure")))
		s.run(by("you@example.org", operation(event.Update, instance, "azure")))
	}
	s.run(by("me@example.org", operation(event.Deprovision, "gone", "azure")))
	testkit.Eventually(t, patience, "the user IDs are removed", func() bool { return s.users("gone") == 0 })
	if n := s.users("stays"); n != 2 {
		t.Errorf("%d requests of the remaining instance contain a user ID, want 2", n)
	}
	var account string
	if err := s.db.Get(&account, `SELECT DISTINCT body #>> '{context,globalAccountId}' FROM orchestrator.requests`); err != nil || account != "ga" {
		t.Errorf("account %q, %v: only the user ID must be removed", account, err)
	}
	// A later order with the same ID is another instance.
	s.run(by("me@example.org", operation(event.Provision, "gone", "azure")))
	if n := s.users("gone"); n != 1 {
		t.Errorf("%d requests of the new instance contain a user ID, want 1", n)
	}
}

func TestPersonalData_StepsNotCompleted_IsKept(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.run(by("me@example.org", operation(event.Provision, "i", "azure")))
	s.script.set("Remove_First", func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		return worker.Fail(op, &worker.Error{Component: "ext", Err: errors.New("no")})
	})
	s.run(by("me@example.org", operation(event.Deprovision, "i", "azure")))
	if n := s.users("i"); n != 2 {
		t.Errorf("%d requests contain a user ID, want 2: the deprovisioning runs again", n)
	}
	s.script.set("Remove_First", done)
	s.run(by("me@example.org", operation(event.Deprovision, "i", "azure")))
	testkit.Eventually(t, patience, "the user IDs are removed", func() bool { return s.users("i") == 0 })
}
