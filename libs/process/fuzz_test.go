package process_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

func FuzzLoad(f *testing.F) {
	base, err := os.ReadFile("testdata/base/provision.yaml")
	require.NoError(f, err)
	f.Add(base, []byte("operation: provision\nchanges:\n  - disable: One\n"))
	f.Add([]byte("operation: provision\nstages: [{name: s, steps: [{name: A, worker: a}]}]"),
		[]byte("operation: provision\nchanges:\n  - addStage: {name: x, before: s, steps: [{name: B, worker: b, when: 'has(parameters.a)'}]}\n  - move: {step: A, after: B}"))
	f.Add([]byte("a: &a [*a]"), []byte("? [x]\n: y"))
	f.Add([]byte("operation: provision\nstages: {}\n"), []byte("- - -"))
	f.Add([]byte("\xff\x00"), []byte("!!binary x"))
	f.Fuzz(func(t *testing.T, content, overlay []byte) {
		set, err := process.Load(
			fstest.MapFS{"provision.yaml": {Data: content}},
			fstest.MapFS{"overlay.yaml": {Data: overlay}},
		)
		if err != nil {
			if set != nil {
				t.Error("both a set and an error")
			}
			return
		}
		for _, p := range set {
			parsed, err := process.Parse(p.Canonical())
			if err != nil {
				t.Fatalf("the loaded process cannot be parsed: %v\n%s", err, p.Canonical())
			}
			if !parsed.Equal(p) {
				t.Errorf("the canonical form changed:\n%s\n%s", p.Canonical(), parsed.Canonical())
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	set, err := process.Load(os.DirFS("testdata/base"))
	require.NoError(f, err)
	f.Add(set[event.Provision].Canonical())
	f.Add([]byte(`{"operation":"x","stages":[{"name":"s","steps":[{"when":"plan"}]}]}`))
	f.Fuzz(func(t *testing.T, canonical []byte) {
		p, err := process.Parse(canonical)
		if err != nil {
			return
		}
		again, err := process.Parse(p.Canonical())
		if err != nil || !again.Equal(p) {
			t.Errorf("parsed %s, then %v", p.Canonical(), err)
		}
	})
}

func FuzzCondition(f *testing.F) {
	for _, when := range []string{`plan.name in ["a"]`, `parameters.zones.exists(z, z == "2")`, `details.a.b[1] > 3 ? true : has(context.userId)`, `plan == plan`} {
		f.Add(when)
	}
	f.Fuzz(func(t *testing.T, when string) {
		s, err := conditional(t, when)
		if err != nil {
			return
		}
		_, _ = s.Runs(input()) // Whatever it says, it must come back and not panic.
	})
}
