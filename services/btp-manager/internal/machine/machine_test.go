package machine_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/machine"
)

// at returns the position with a reason.
func at(t *testing.T, r v1alpha1.Reason) machine.At {
	t.Helper()
	if r == "" {
		return machine.At{}
	}
	m, ok := r.Meaning()
	if !ok {
		t.Fatalf("no reason %q", r)
	}
	return machine.At{State: m.State, Reason: m.Reason}
}

// Every line describes one event in each position that has it; in all other positions it is rejected.
func TestNext_EachEvent_FollowsTable(t *testing.T) {
	t.Parallel()
	const (
		none       = v1alpha1.Reason("")
		succeeded  = v1alpha1.ReasonReconcileSucceeded
		started    = v1alpha1.ReasonInitialized
		handedOver = v1alpha1.ReasonProcessing
		updated    = v1alpha1.ReasonUpdated
		moved      = v1alpha1.ReasonCredentialsNamespaceChanged
		otherID    = v1alpha1.ReasonClusterIDChanged
		redundant  = v1alpha1.ReasonOlderCRExists
		missing    = v1alpha1.ReasonMissingSecret
		invalid    = v1alpha1.ReasonInvalidSecret
		install    = v1alpha1.ReasonChartInstallFailed
		check      = v1alpha1.ReasonConsistencyCheckFailed
		blocked    = v1alpha1.ReasonNotCleaned
		hard       = v1alpha1.ReasonHardDeleting
		soft       = v1alpha1.ReasonSoftDeleting
		removal    = v1alpha1.ReasonResourceRemovalFailed
	)
	type to = map[v1alpha1.Reason]v1alpha1.Reason
	processing := []v1alpha1.Reason{started, handedOver, updated, moved, otherID}
	failed := []v1alpha1.Reason{redundant, missing, invalid, install, check, removal}
	// all describes the event in each of several positions, in addition to those in rest.
	all := func(from []v1alpha1.Reason, where v1alpha1.Reason, rest to) to {
		m := to{}
		for _, r := range from {
			m[r] = where
		}
		maps.Copy(m, rest)
		return m
	}
	// stay means that the event changes nothing in these positions.
	stay := func(in []v1alpha1.Reason, rest to) to {
		m := to{}
		for _, r := range in {
			m[r] = r
		}
		maps.Copy(m, rest)
		return m
	}
	want := map[machine.Event]to{
		machine.Leads:         {none: started, redundant: handedOver},
		machine.OlderExists:   all(slices.Concat(processing, failed), redundant, to{none: redundant, succeeded: redundant}),
		machine.SecretMissing: all(slices.Concat(processing, failed), missing, to{succeeded: missing}),
		machine.SecretInvalid: all(slices.Concat(processing, failed), invalid, to{succeeded: invalid}),
		machine.SecretUsable:  {missing: updated, invalid: updated},
		machine.ChartFailed:   all(processing, install, stay(failed, to{succeeded: check})),
		machine.ObjectsNotReady: stay(slices.Concat(processing, failed), to{
			succeeded: started,
		}),
		machine.ReadyTimedOut:    all(processing, install, stay(failed, nil)),
		machine.ObjectsReady:     all(processing, succeeded, all(failed, updated, to{succeeded: succeeded})),
		machine.CredentialsMoved: {succeeded: moved},
		machine.ClusterIDChanged: {succeeded: otherID},
		machine.DeletionBlocked: all(slices.Concat(processing, failed), blocked, to{
			none: blocked, succeeded: blocked, blocked: blocked,
		}),
		machine.DeletionStarted: all(slices.Concat(processing, failed), hard, to{
			none: hard, succeeded: hard, blocked: hard, hard: hard,
		}),
		machine.HardDeleteFailed:   {hard: soft, removal: soft},
		machine.HardDeleteTimedOut: {hard: soft, removal: soft},
		machine.RemovalFailed:      {hard: removal, soft: removal, removal: removal},
	}
	for _, event := range machine.Events() {
		t.Run(string(event), func(t *testing.T) {
			t.Parallel()
			places := []v1alpha1.Reason{none}
			for _, m := range v1alpha1.Reasons() {
				places = append(places, m.Reason)
			}
			for _, from := range places {
				got, err := machine.Next(at(t, from), event)
				where, known := want[event][from]
				switch {
				case !known && !errors.Is(err, machine.ErrNoTransition):
					t.Errorf("%s: got %s, %v, want ErrNoTransition", at(t, from), got, err)
				case known && (err != nil || got != at(t, where)):
					t.Errorf("%s: got %s, %v, want %s", at(t, from), got, err, at(t, where))
				}
			}
		})
	}
}

func TestTable_EachRow_HasEffect(t *testing.T) {
	t.Parallel()
	table := machine.Table()
	for i, row := range table {
		if slices.ContainsFunc(table[:i], func(other machine.Row) bool { return other.From == row.From && other.Event == row.Event }) {
			t.Errorf("%s in %s is duplicated", row.Event, row.From)
		}
		if !slices.Contains(machine.Events(), row.Event) {
			t.Errorf("%s is no event", row.Event)
		}
		if _, ok := row.To.Meaning(); row.To != "" && !ok {
			t.Errorf("%s in %s leads to %q, which is no reason", row.Event, row.From, row.To)
		}
	}
}

func TestTable_EachReason_IsReachable(t *testing.T) {
	t.Parallel()
	for _, m := range v1alpha1.Reasons() {
		if !slices.ContainsFunc(machine.Table(), func(row machine.Row) bool { return row.To == m.Reason }) {
			t.Errorf("no event leads to %s", m.Reason)
		}
	}
}
