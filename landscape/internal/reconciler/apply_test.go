package reconciler

import "testing"

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a", "current-context: c\ncontexts: [{name: c}]", "clusters: {}", "users: [{user: 1}]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := parse(s); err == nil && s == "" {
			t.Error("an empty kubeconfig is usable")
		}
	})
}
