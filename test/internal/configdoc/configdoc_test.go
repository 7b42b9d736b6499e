package configdoc_test

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/test/internal/configdoc"
)

//go:generate go run ./cmd ../../.. ../../../docs/configuration.md

const root = "../../.."

func TestConfigurationPage_Generated_IsUpToDate(t *testing.T) {
	t.Parallel()
	want, err := configdoc.Page(root)
	require.NoError(t, err)
	got, err := os.ReadFile(root + "/docs/configuration.md")
	require.NoError(t, err)
	if diff := cmp.Diff(string(got), string(want)); diff != "" {
		t.Errorf("docs/configuration.md is out of date: run go generate ./internal/configdoc in test/ (-file +generated):\n%.2000s", diff)
	}
}

// One variable of each kind: of the main, of an embedded struct of the same package and of another one, and with a prefix.
func TestVariables_NestedStructs_AreFound(t *testing.T) {
	t.Parallel()
	names, err := configdoc.Names(root)
	require.NoError(t, err)
	for _, want := range []string{
		"KEB_LOG_LEVEL", "KEB_METRICS_ADDR", "KEB_ADMISSION", "KEB_ACCESS_OIDC_ISSUER", "KEB_PROVISIONER_URL", "KEB_KCP_URL", "KEB_KYMA1_COMPONENTS",
		"KEB_AVS_TRIAL_GROUP_ID", "KEB_WORKER_RATE_LIMIT", "KEB_LANDSCAPE_DATA_DIR", "KEB_CIS_URL",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
}
