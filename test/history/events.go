package history

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// Events returns the transitions in the database that have facts, and the facts on the bus.
func Events(t testing.TB, db *sqlx.DB, js jetstream.JetStream) (records []*Record) {
	t.Helper()
	var transitions []struct {
		Operation, Instance, Type string
		Cursor                    int64
	}
	require.NoError(t, db.SelectContext(t.Context(), &transitions, `
SELECT o.id::text AS operation, o.instance_id::text AS instance, o.type::text AS type, h.cursor
FROM orchestrator.history h JOIN orchestrator.operations o ON o.id = h.operation_id
WHERE h.kind NOT IN ('retried by operator', 'event received', 'operation ending')`))
	for _, n := range transitions {
		records = append(records, &Record{Kind: Transition, Instance: n.Instance, Operation: n.Operation, Type: n.Type, Cursor: n.Cursor})
	}
	EachFact(t, js, "keb.fact.>", func(m jetstream.Msg) {
		var f event.Fact
		require.NoError(t, json.Unmarshal(m.Data(), &f))
		kind := m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]
		records = append(records, &Record{
			Kind: Fact, Instance: f.InstanceID, Operation: f.OperationID, Cursor: f.Cursor, Type: strings.TrimPrefix(kind, "operation-"),
		})
	})
	return records
}

// EachFact calls visit for each fact on the bus whose subject matches the filter.
func EachFact(t testing.TB, js jetstream.JetStream, filter string, visit func(m jetstream.Msg)) {
	t.Helper()
	consumer, err := js.OrderedConsumer(t.Context(), string(event.StreamFacts), jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	require.NoError(t, err)
	for {
		batch, err := consumer.FetchNoWait(1000)
		require.NoError(t, err)
		n := 0
		for m := range batch.Messages() {
			n++
			visit(m)
		}
		require.NoError(t, batch.Error())
		if n == 0 {
			return
		}
	}
}
