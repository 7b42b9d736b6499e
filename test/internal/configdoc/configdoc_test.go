package configdoc_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/configdoc"
)

//go:generate go test -count=1 -run ^TestConfigurationPage_Generated_IsUpToDate$ . -update

const root = "../../.."

func TestConfigurationPage_Generated_IsUpToDate(t *testing.T) {
	t.Parallel()
	page, err := configdoc.Page(root)
	require.NoError(t, err)
	testkit.Golden(t, root+"/docs/configuration.md", page)
}

// One variable of each kind: of the main, of an embedded struct of the same package and of another one, and with a prefix.
func TestVariables_NestedStructs_AreFound(t *testing.T) {
	t.Parallel()
	names, err := configdoc.Names(root)
	require.NoError(t, err)
	for _, want := range []string{
		"KEB_LOG_LEVEL", "KEB_METRICS_ADDR", "KEB_MAINTENANCE_POLICY", "KEB_ACCESS_OIDC_ISSUER", "KEB_PROVISIONER_URL", "KEB_KCP_URL", "KEB_KYMA1_COMPONENTS",
		"KEB_AVS_TRIAL_GROUP_ID", "KEB_WORKER_RATE_LIMIT", "KEB_LANDSCAPE_DATA_DIR", "KEB_CIS_URL",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
}
