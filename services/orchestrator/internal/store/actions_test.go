package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func (b *bundle) actions() *Actions { return NewActions(b.db, b.db) }

// begun returns an action of a user.
func (b *bundle) begun(s *Actions, name string, at time.Time) *Action {
	b.t.Helper()
	a := &Action{
		At: at, Name: name, Subject: "s", Role: "operator", Authentication: "token", Action: "retry", Target: "t", Outcome: OutcomeBegun,
	}
	require.NoError(b.t, s.Begin(b.t.Context(), a))
	return a
}

func (b *bundle) names(s *Actions, f ActionFilter) string {
	b.t.Helper()
	f.Limit = 100
	page, _, err := s.List(b.t.Context(), f)
	require.NoError(b.t, err)
	var names []string
	for _, a := range page {
		names = append(names, a.Name)
	}
	return strings.Join(names, " ")
}

func TestActions_Record_IsWrittenBeforeAndAfter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.actions()
	a := b.begun(s, "otto", epoch)
	page, total, err := s.List(t.Context(), ActionFilter{Limit: 10})
	if err != nil || total != 1 {
		t.Fatal(total, err)
	}
	if diff := cmp.Diff(*a, page[0]); diff != "" {
		t.Errorf("begun (-want +got)\n%s", diff)
	}
	a.Outcome, a.Reason, a.Target, a.Name, a.Detail = OutcomeRefused, "why\x00\xff"+strings.Repeat("x", 5000), "t2", "jane", "d"
	require.NoError(t, s.End(t.Context(), a))
	page, _, err = s.List(t.Context(), ActionFilter{Limit: 10})
	if err != nil || len(page) != 1 {
		t.Fatal(len(page), err)
	}
	got := page[0]
	if got.Outcome != OutcomeRefused || got.Target != "t2" || got.Name != "jane" || got.Detail != "d" || !strings.HasPrefix(got.Reason, "why") || len(got.Reason) > maxReason {
		t.Errorf("ended: %+v", got)
	}
	if err := s.End(t.Context(), a); err == nil {
		t.Error("an action ends twice")
	}
}

func TestActions_List_IsFilteredAndNewestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.actions()
	for n := range 5 {
		b.begun(s, fmt.Sprint("n", n), epoch.Add(time.Duration(n)*time.Hour))
	}
	done := b.begun(s, "otto", epoch)
	done.Outcome = OutcomeDone
	require.NoError(t, s.End(t.Context(), done))
	for want, f := range map[string]ActionFilter{
		"otto n4 n3 n2 n1 n0": {}, "otto": {Outcome: OutcomeDone}, "n3": {Name: "n3"}, "": {Action: "skip"}, "n2 n1 n0": {Offset: 3, Target: "t"},
	} {
		if got := b.names(s, f); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

func TestActions_RetentionOver_AreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.actions()
	for n := range 6 {
		b.begun(s, fmt.Sprint("n", n), epoch.Add(time.Duration(n)*time.Hour))
	}
	if n, err := s.Forget(t.Context(), epoch.Add(2*time.Hour), 100); err != nil || n != 2 {
		t.Errorf("by age: %d, %v", n, err)
	}
	if n, err := s.Forget(t.Context(), epoch, 3); err != nil || n != 1 {
		t.Errorf("by number: %d, %v", n, err)
	}
	if got := b.names(s, ActionFilter{}); got != "n5 n4 n3" {
		t.Errorf("left: %s", got)
	}
	if n, err := s.Forget(t.Context(), epoch.Add(time.Hour*24), 100); err != nil || n != 3 {
		t.Errorf("all: %d, %v", n, err)
	}
}

func TestActions_ManyRejected_KeepCompletedOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.actions()
	b.begun(s, "otto", epoch)
	for n := range 30 {
		refused := &Action{
			At: epoch, Name: fmt.Sprint("vera", n), Role: "viewer", Authentication: "token", Action: "cancel", Outcome: OutcomeRefused,
		}
		require.NoError(t, s.Begin(t.Context(), refused))
	}
	if n, err := s.Forget(t.Context(), epoch, 20); err != nil || n != 28 {
		t.Errorf("removed: %d, %v", n, err)
	}
	if got := b.names(s, ActionFilter{}); got != "vera29 vera28 otto" {
		t.Errorf("left: %s", got)
	}
}
