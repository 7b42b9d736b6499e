package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/services/orchestrator/internal/batch"
	"github.com/kyma-project/keb/services/orchestrator/internal/filter"
)

// parsed parses a filter expression.
func parsed(t *testing.T, text string) *filter.Expression {
	t.Helper()
	e, err := filter.Parse(text, operator.FilterFields())
	require.NoError(t, err, text)
	return e
}

func TestOperations_FilterExpression_FindsMatches(t *testing.T) {
	b := setup(t)
	rows := several(b)
	names := map[string]string{}
	for name, r := range rows {
		names[r.Operation.ID] = name
	}
	failed := rows["failed"].Operation.ID
	all := []string{"behind", "pending", "failed", "retrying", "second", "started"}
	places := Places{{Definition: b.p.Hash(), Stage: 0, Step: 1}}
	for text, want := range map[string][]string{
		"state = failed":                                  {"failed"},
		"state != failed":                                 {"behind", "pending", "retrying", "second", "started"},
		"state = (failed OR pending)":                     {"behind", "pending", "failed"},
		"state != (failed OR pending)":                    {"retrying", "second", "started"},
		"plan = aws AND (state = failed OR instance=i-1)": {"failed", "second"},
		"plan = aws state = failed":                       {"failed"},
		"NOT plan:(aws OR gcp)":                           {"pending", "retrying", "started"},
		"plan = a*":                                       all,
		"plan = *s":                                       {"behind", "failed", "second"},
		"plan:URE":                                        {"pending", "retrying", "started"},
		"plan = azure_":                                   nil,
		"plan = a_s*":                                     nil,
		"plan = '%'":                                      nil,
		"plan:*":                                          all,
		"region:*":                                        nil,
		"type = update":                                   all,
		"id = " + failed:                                  {"failed"},
		"subaccount = sa-3":                               {"failed"},
		"subaccount != sa-3":                              {"behind", "pending", "retrying", "second", "started"},
		"subaccount = sa-*":                               all,
		"shoot:C-1":                                       {"second"},
		"shoot:* AND NOT shoot = (c-1 OR c-2)":            {"behind", "pending", "failed", "started"},
		"runtime:*":                                       nil,
		"global_account = ga-1 AND plan = aws":            {"behind", "failed", "second"},
		"error.message = broken":                          {"failed"},
		"error.message:ROK":                               {"failed"},
		"error.message != broken":                         {"behind", "pending", "retrying", "second", "started"},
		"error.component:*":                               nil,
		"error = none":                                    {"behind", "pending", "retrying", "second", "started"},
		"waiting = instance_busy":                         {"behind"},
		"waiting = (admission OR polling)":                {"pending", "retrying"},
		"step = Two":                                      {"second"},
		"step != Two":                                     {"behind", "pending", "failed", "retrying", "started"},
		"worker = none":                                   nil,
		"held = true":                                     nil,
		"held != true":                                    all,
		"hold:*":                                          nil,
		"incomplete = false":                              all,
		"created >= 2026-01-01 OR created < 2026-01-01":               all,
		"created >= " + epoch.Add(4*time.Minute).Format(time.RFC3339): {"behind", "pending"},
		"started:*":                        {"failed", "retrying", "second", "started"},
		"finished:*":                       {"failed"},
		"duration < 1s":                    {"behind", "pending", "failed"},
		"attempts >= 1":                    {"failed", "retrying", "second", "started"},
		"attempts = 7":                     nil,
		"orchestration:*":                  nil,
		"orchestration != " + failed:       all,
		"limit_name = ias":                 nil,
		"message:* OR state = failed":      {"failed"},
		"plan = azure OR plan = aws":       all,
		"NOT (plan = azure OR plan = aws)": nil,
	} {
		f := Filter{Expression: parsed(t, text), Limit: 100, Located: map[*filter.Comparison]Places{}}
		for c := range f.Expression.Comparisons() {
			if c.Field.Name == "step" {
				f.Located[c] = places
			}
		}
		list, err := b.List(t.Context(), f)
		require.NoError(t, err, text)
		var got []string
		for _, r := range list.Rows {
			got = append(got, names[r.Operation.ID])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: found (-want +got):\n%s", text, diff)
		}
		if list.Total != len(want) {
			t.Errorf("%s: total %d", text, list.Total)
		}
	}
}

func TestConditions_EveryField_HasOne(t *testing.T) {
	t.Parallel()
	var declared []string
	for _, f := range operator.FilterFields() {
		declared = append(declared, f.Name)
	}
	if !slices.IsSorted(declared) {
		t.Errorf("the fields are not sorted: %v", declared)
	}
	if diff := cmp.Diff(declared, slices.Sorted(maps.Keys(conditions))); diff != "" {
		t.Errorf("fields of the language and of the store differ (-language +store):\n%s", diff)
	}
}

// Values reach the database as arguments only.
func TestExpression_Values_AreArguments(t *testing.T) {
	t.Parallel()
	const evil = "x'); DROP TABLE orchestrator.operations; --%s"
	for _, field := range operator.FilterFields() {
		if field.Kind != operator.FilterText && field.Kind != operator.FilterName {
			continue
		}
		for _, by := range []string{" = ", " != ", ":"} {
			e := parsed(t, field.Name+by+`"`+evil+`"`)
			w := (&Filter{Expression: e, Located: map[*filter.Comparison]Places{}}).where()
			if strings.Contains(w.String(), "DROP") {
				t.Errorf("%s%s: the statement is %s", field.Name, by, w)
			}
		}
	}
}

func TestOperations_SlowFilterExpression_IsStopped(t *testing.T) {
	b := setup(t)
	tx, err := b.db.Beginx()
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec(`LOCK TABLE orchestrator.operations`)
	require.NoError(t, err)
	b.maxFilterTime = 50 * time.Millisecond
	f := Filter{Expression: parsed(t, "plan = azure"), Limit: 10}
	if _, err := b.List(t.Context(), f); !errors.Is(err, ErrSlowFilter) {
		t.Errorf("list: %v", err)
	}
	if _, err := NewBatches(b.Store, b.db, b.db).Select(t.Context(), f); !errors.Is(err, ErrSlowFilter) {
		t.Errorf("select: %v", err)
	}
	order := &batch.Batch{ID: uuid.Must(uuid.NewV7()).String(), Order: batch.Order{Action: batch.Retry, Reason: "test", By: "eve", Rate: batch.DefaultRate}, CreatedAt: epoch}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := NewBatches(b.Store, b.db, b.db).Create(ctx, order, f, func(int) error { return nil }); !errors.Is(err, ErrSlowFilter) {
		t.Errorf("create: %v", err)
	}
}
