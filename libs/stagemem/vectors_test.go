package stagemem_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestVectors_Keys_AreEncodedAndDecoded(t *testing.T) {
	t.Parallel()
	type in struct {
		OperationID, Stage, Value, Step, Component, DeathsOf string
		StageAttempt                                         int
	}
	type out struct {
		Key     string `json:"key"`
		Subject string `json:"subject"`
	}
	testkit.Vectors(t, "stage-keys.json", func(in in) out {
		scope, name := stagemem.Scope{OperationID: in.OperationID, Stage: in.Stage, StageAttempt: in.StageAttempt}, ""
		switch {
		case in.DeathsOf != "":
			scope, name = stagemem.Deaths(in.OperationID, in.Stage), in.DeathsOf
		case in.Value != "":
			name = stagemem.ValueName(in.Value)
		case in.Step != "":
			name = stagemem.OverrideName(in.Step, in.Component)
		}
		key, err := stagemem.Key(scope, name)
		require.NoError(t, err)
		if name != "" {
			read, err := stagemem.Name(key[strings.LastIndex(key, ".")+1:])
			require.NoError(t, err)
			require.Equal(t, name, read)
		}
		return out{Key: key, Subject: "$KV." + event.StageBucket + "." + key}
	})
}
