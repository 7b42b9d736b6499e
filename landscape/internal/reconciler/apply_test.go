package reconciler

import "testing"

func FuzzKubeconfigNeverPanics(f *testing.F) {
	for _, s := range []string{"", "a", "current-context: c\ncontexts: [{name: c}]", "clusters: {}", "users: [{user: 1}]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if err := usable(s); err == nil && s == "" {
			t.Error("an empty kubeconfig is usable")
		}
	})
}
