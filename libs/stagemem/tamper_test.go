package stagemem_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
)

func TestGet_TamperedValue_ReturnsErrTampered(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const canary = "CANARY-value"
	next := scope
	next.StageAttempt = 2
	stranger := scope
	stranger.OperationID = "6f7d1f7e-0000-4000-8000-000000000002"
	for _, s := range []stagemem.Scope{scope, next, stranger} {
		put(t, f.mem, s, "kubeconfig", canary)
		put(t, f.mem, s, "token", canary)
	}
	kv, err := f.js.KeyValue(t.Context(), event.StageBucket)
	require.NoError(t, err)
	stored := func(s stagemem.Scope, key string) string {
		t.Helper()
		prefix := s.OperationID + "." + s.Stage + "." + map[int]string{1: "1.", 2: "2."}[s.StageAttempt]
		e, err := kv.Get(t.Context(), prefix+key)
		require.NoError(t, err)
		return string(e.Value())
	}
	good := stored(next, "kubeconfig")
	cases := map[string]string{
		"of an earlier attempt": stored(scope, "kubeconfig"), "of another key": stored(next, "token"), "of another operation": stored(stranger, "kubeconfig"),
		"empty": "", "no sealed value": canary, "cut": good[:len(good)-6], "another version": strings.Replace(good, "v1.", "v2.", 1),
	}
	body := strings.LastIndex(good, ".") + 1
	for at := body; at < len(good); at++ {
		turned := []byte(good)
		turned[at] = 'A' + (turned[at]-'A'+1)%26
		if string(turned) != good {
			cases[fmt.Sprintf("turned at %d", at)] = string(turned)
		}
	}
	for what, value := range cases {
		_, err := kv.PutString(t.Context(), next.OperationID+".create_runtime.2.kubeconfig", value)
		require.NoError(t, err)
		_, err = f.other().Get(t.Context(), next, "kubeconfig")
		if !errors.Is(err, seal.ErrTampered) || !strings.Contains(err.Error(), `"kubeconfig"`) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: error is %v, want ErrTampered that names the key", what, err)
		}
		if values, err := f.other().List(t.Context(), next, ""); !errors.Is(err, seal.ErrTampered) || len(values) > 0 {
			t.Errorf("%s: %d values are listed, %v", what, len(values), err)
		}
	}
	_, err = kv.PutString(t.Context(), next.OperationID+".create_runtime.2.kubeconfig", good)
	require.NoError(t, err)
	if got, err := f.other().Get(t.Context(), next, "kubeconfig"); err != nil || string(got) != canary {
		t.Errorf("when it is put back: %q, %v", got, err)
	}
}

func TestGet_UnknownKey_IsNamed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	put(t, f.mem, scope, "kubeconfig", "CANARY")
	other, err := seal.ParseKeyring("next:" + seal.NewKey())
	require.NoError(t, err)
	_, err = stagemem.New(f.js, other).Get(t.Context(), scope, "kubeconfig")
	if !errors.Is(err, seal.ErrUnknownKey) || !strings.Contains(err.Error(), `key id "test"`) {
		t.Errorf("error is %v, want one that names the key", err)
	}
}
