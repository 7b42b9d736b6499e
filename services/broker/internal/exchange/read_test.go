package exchange_test

import (
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/exchange"
)

func fact(t testing.TB, kind event.Type, data any) cloudevents.Event {
	t.Helper()
	e, err := bus.New(kind, "e", event.SourceOrchestrator, "o", time.Now(), data)
	require.NoError(t, err)
	return e
}

func TestRead_UnknownType_ChangesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []event.Type{event.TypeStageFinished, "io.kyma-project.keb.operation.moved.v1"} {
		if _, changes, err := exchange.Read(fact(t, kind, map[string]any{"operationId": "o"})); changes || err != nil {
			t.Errorf("%s: %t, %v", kind, changes, err)
		}
	}
}

// Any fact is either rejected with a reason, or has an operation and a cursor.
func FuzzRead(f *testing.F) {
	types := []event.Type{
		event.TypeOperationStarted, event.TypeStepFinished, event.TypeOperationSucceeded, event.TypeOperationFailed, event.TypeOperationCancelled,
	}
	for i := range types {
		f.Add(i, []byte(`{"operationId":"o","operationType":"provision","instanceId":"i","cursor":3,"stage":"s","step":"t","outcome":"retry","error":{"message":"m"}}`))
		f.Add(i, []byte(`{"operationId":"","cursor":-1}`))
		f.Add(i, []byte(`[`))
	}
	f.Fuzz(func(t *testing.T, i int, data []byte) {
		e := fact(t, types[uint(i)%uint(len(types))], map[string]any{})
		e.DataEncoded = data
		c, changes, err := exchange.Read(e)
		if err == nil && changes && (c.OperationID == "" || c.Cursor < 0 || c.State == "") {
			t.Errorf("%q gives %+v", data, c)
		}
	})
}
