package render_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/testkit"
)

// The golden files show reviewers the effects of a change in the chart: go test ./internal/render -update
func TestOperand_Golden_IsUnchanged(t *testing.T) {
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			for _, o := range renderOperand(t, v) {
				if o.GetKind() == "CustomResourceDefinition" && name != "defaults" {
					continue // values have no effect on them
				}
				text, err := yaml.Marshal(o)
				require.NoError(t, err)
				fmt.Fprintf(&got, "---\n%s", text)
			}
			testkit.Golden(t, filepath.Join("testdata", name+".yaml"), got.Bytes())
		})
	}
}
