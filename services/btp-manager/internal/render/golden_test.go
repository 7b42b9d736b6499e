package render_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The golden files are what reviewers see of a change in the chart: go test ./internal/render -update
func TestTheOperandIsWhatItWas(t *testing.T) {
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			for _, o := range renderOperand(t, v) {
				if o.GetKind() == "CustomResourceDefinition" && name != "defaults" {
					continue // values do not reach them
				}
				text, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&got, "---\n%s", text)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("the chart renders otherwise (-want +got); if that is meant, run with -update:\n%s", diff)
			}
		})
	}
}
