package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckValues_EmptyValueWithMeaning_IsAllowed(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"process apply --name= overlay.yaml", "nats config --worker=", "secrets init --worker=", "provision --platform-region=",
		"up --database-url= --maintenance-policy= --access-tokens-file= --overlays=",
	} {
		cmd, rest, err := newRoot(IO{}).Find(strings.Fields(line))
		require.NoError(t, err)
		require.NoError(t, cmd.ParseFlags(rest))
		if err := checkValues(cmd); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
