package contract

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

func TestSavedFor_Results_AreMergedByInstance(t *testing.T) {
	t.Parallel()
	w := newWire("own", nil)
	save := func(instance, details string, stored int) {
		r := &result{order: &order{command: event.StepExecute{Operation: event.Operation{InstanceID: instance}}}, stored: stored}
		r.body.Details = json.RawMessage(details)
		w.results = append(w.results, r)
	}
	save("a", `{"id":1,"gone":true}`, 1)
	save("b", `{"id":2}`, 2)
	save("a", `{"gone":null,"name":"x"}`, 3)
	save("a", `{"id":"refused by the stream"}`, 0)
	k := &kit{cfg: Config{Worker: "own"}, wire: w}
	saved, err := k.savedFor("a", json.RawMessage(`{"other":{"id":7},"own":{"first":0}}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"other":{"id":7},"own":{"first":0,"id":1,"name":"x"}}`, string(saved))
}
