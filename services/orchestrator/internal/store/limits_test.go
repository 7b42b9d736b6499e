package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

func TestLimits_Apply_ReplacesTheDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, want := range []limit.Document{
		{},
		{Version: 1, Text: "limits: []", AppliedBy: "jane", AppliedAt: epoch},
		{Version: 2, Text: "", AppliedBy: "joe", AppliedAt: epoch.Add(time.Second)},
	} {
		if i > 0 {
			version, err := b.ApplyLimits(t.Context(), want.Text, want.AppliedBy, want.AppliedAt)
			require.NoError(t, err)
			if version != want.Version {
				t.Errorf("version %d, want %d", version, want.Version)
			}
		}
		got, err := b.Limits(t.Context())
		require.NoError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("document (-want +got):\n%s", diff)
		}
		status, err := b.SweepStatus(t.Context(), time.Now(), true)
		require.NoError(t, err)
		if status.Limits != want.Version {
			t.Errorf("the sweep sees version %d, want %d", status.Limits, want.Version)
		}
	}
}

// The scopes of limits decide in SQL as they do in memory.
func TestLimits_PendingOperations_AreLimitedByScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	row := b.row(1)
	row.Operation.Context.GlobalAccountID, row.Operation.Plan.Name, row.Operation.Runtime.Region = "ga", "aws", "eu"
	b.insert(&Change{Row: row})
	for _, c := range []struct {
		limits string
		want   operator.WaitingReason
	}{
		{"", operator.Admission},
		{"{name: all, operations: 5}", operator.Limited},
		{"{name: commands, commands: 5}", operator.Admission},
		{"{name: one, scope: {type: provision}, operations: 5}", operator.Admission},
		{"{name: one, scope: {type: provision}, operations: 5}, {name: two, scope: {type: update}, operations: 5}", operator.Limited},
		{"{name: one, scope: {type: [provision, update], plan: aws, region: [us, eu], globalAccount: ga}, operations: 5}", operator.Limited},
		{"{name: one, scope: {type: [provision, update], plan: azure, region: [us, eu], globalAccount: ga}, operations: 5}", operator.Admission},
		{"{name: one, scope: {region: us}, operations: 5}", operator.Admission},
		{"{name: one, scope: {globalAccount: other}, operations: 5}", operator.Admission},
	} {
		document := "limits: [" + c.limits + "]"
		_, err := b.ApplyLimits(t.Context(), document, "me", epoch)
		require.NoError(t, err)
		list, err := b.List(t.Context(), Filter{Waiting: []operator.WaitingReason{c.want}, Limit: 1})
		require.NoError(t, err)
		counted, err := b.Census(t.Context())
		require.NoError(t, err)
		if len(list.Rows) != 1 || len(counted.Groups) != 1 || counted.Groups[0].Reason != c.want {
			t.Errorf("%s: listed %d, counted %+v, want %s", document, len(list.Rows), counted.Groups, c.want)
		}
		set, err := limit.Parse([]byte(document))
		require.NoError(t, err)
		if q := limit.QueueOf(&row.Operation); len(q.Keys(set)) > 0 != (c.want == operator.Limited) {
			t.Errorf("%s: the limits in memory differ", document)
		}
	}
}
