package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

func TestStatesPage_Generated_IsUpToDate(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# States of a BtpOperator\n\nGenerated from the code by `make generate`; changes made here are lost.\n\n")
	b.WriteString("`status.state` sums up the one condition, of the type `Ready`. Its reason says why, its message says what in words.\n\n")
	b.WriteString("| State | Reason | Condition | Meaning |\n|---|---|---|---|\n")
	for _, m := range v1alpha1.Reasons() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.State, m.Reason, m.Status, m.Means)
	}
	b.WriteString("\n## Transitions\n\nA row without a reason applies to the whole state. After the removal the BtpOperator is gone.\n\n")
	b.WriteString("| From | Event | To |\n|---|---|---|\n")
	for _, row := range table() {
		to := "stays"
		if m, ok := row.to.Meaning(); ok {
			to = position{m.State, m.Reason}.String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.from, row.by, to)
	}
	testkit.Golden(t, "../../../../docs/btp-manager-states.md", []byte(b.String()))
}

func TestNext_Event_FollowsTable(t *testing.T) {
	t.Parallel()
	at := func(r v1alpha1.Reason) position {
		m, _ := r.Meaning()
		return position{m.State, r}
	}
	for _, tt := range []struct {
		from, want position
		by         event
	}{
		{position{}, at(v1alpha1.ReasonInitialized), leads},
		{at(v1alpha1.ReasonUpdated), at(v1alpha1.ReasonReconcileSucceeded), objectsReady},
		{at(v1alpha1.ReasonOlderCRExists), at(v1alpha1.ReasonProcessing), leads},
		{at(v1alpha1.ReasonOlderCRExists), at(v1alpha1.ReasonOlderCRExists), olderExists},
		{at(v1alpha1.ReasonInvalidSecret), at(v1alpha1.ReasonInvalidSecret), chartFailed},
		{at(v1alpha1.ReasonHardDeleting), at(v1alpha1.ReasonSoftDeleting), hardDeleteTimedOut},
	} {
		if got, err := next(tt.from, tt.by); err != nil || got != tt.want {
			t.Errorf("%s in %s: got %s, %v, want %s", tt.by, tt.from, got, err, tt.want)
		}
	}
	for _, from := range []position{{}, at(v1alpha1.ReasonReconcileSucceeded), at(v1alpha1.ReasonMissingSecret)} {
		if got, err := next(from, hardDeleteTimedOut); err == nil {
			t.Errorf("%s in %s leads to %s, want an error", hardDeleteTimedOut, from, got)
		}
	}
}

func TestTable_Rows_AreUnambiguousAndReachEachReason(t *testing.T) {
	t.Parallel()
	rows := table()
	for i, row := range rows {
		overlaps := func(other transition) bool {
			return other.applies(row.from, row.by) || row.applies(other.from, other.by)
		}
		if slices.ContainsFunc(rows[:i], overlaps) {
			t.Errorf("%s in %s has several transitions", row.by, row.from)
		}
		if _, ok := row.to.Meaning(); row.to != "" && !ok {
			t.Errorf("%s in %s leads to %q, which is no reason", row.by, row.from, row.to)
		}
	}
	for _, m := range v1alpha1.Reasons() {
		if !slices.ContainsFunc(rows, func(row transition) bool { return row.to == m.Reason }) {
			t.Errorf("no event leads to %s", m.Reason)
		}
	}
}
