package process_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

func single(t *testing.T, content string) *process.Process {
	t.Helper()
	set, err := process.Load(fstest.MapFS{"provision.yaml": {Data: []byte(content)}})
	require.NoError(t, err)
	return set[event.Provision]
}

func TestHash_FileLayout_IsIgnored(t *testing.T) {
	t.Parallel()
	first := single(t, `operation: provision
timeout: 24h
stages:
  - name: s
    steps:
      - name: A
        worker: a
        when: plan.name != "trial"
        retry: {every: 10s, timeout: 60m}
`)
	second := single(t, `# The same in other words: order, quotes, JSON, units, and defaults written out.
{"stages": [{"steps": [{"retry": {"scope": "stage", "timeout": "1h"}, "onFailure": "fail",
  "when": "plan.name != \"trial\"  ", "worker": "a", "execution": "60s", "name": "A"}], "name": "s"}],
 "operation": "provision"}
`)
	if first.Hash() != second.Hash() {
		t.Errorf("hashes differ:\n%s\n%s", first.Canonical(), second.Canonical())
	}
	if len(first.Hash()) != 32 || strings.Trim(first.Hash(), "0123456789abcdef") != "" {
		t.Errorf("the hash is %q, want 32 hexadecimal digits", first.Hash())
	}
}

func TestHash_EverySetting_Counts(t *testing.T) {
	t.Parallel()
	const format = "operation: provision\ntimeout: %s\nstages:\n  - name: %s\n    steps:\n" +
		"      - {name: %s, worker: %s, when: %s, retry: {every: %s, timeout: %s, scope: %s, factor: %s, max: %s, jitter: %s}, wait: {every: %s, timeout: %s}, execution: %s, onTimeout: %s, onFailure: %s}\n"
	base := []any{"24h", "s", "A", "a", "'true'", "10s", "1h", "stage", "2", "1m", "0.2", "10s", "1h", "1m", "fail", "fail"}
	other := []any{"23h", "z", "B", "b", "'false'", "11s", "2h", "step", "2.5", "2m", "0.3", "11s", "2h", "2m", "skip", "skip"}
	seen := map[string]int{single(t, fmt.Sprintf(format, base...)).Hash(): -1}
	for i := range base {
		values := append([]any(nil), base...)
		values[i] = other[i]
		hash := single(t, fmt.Sprintf(format, values...)).Hash()
		if j, again := seen[hash]; again {
			t.Errorf("settings %d and %d give the same hash", i, j)
		}
		seen[hash] = i
	}
}

// The canonical form is stored while an operation runs. A release that writes it differently would lose the definitions of running
// operations.
func TestCanonical_Form_IsFixed(t *testing.T) {
	t.Parallel()
	p := single(t, "operation: provision\nstages:\n  - name: s\n    steps:\n"+
		"      - {name: Starting, worker: orchestrator}\n"+
		"      - {name: A, worker: a, when: 'true', retry: {every: 1500ms, timeout: 90m, scope: step}, onTimeout: skip}\n"+
		"      - {name: B, worker: a, retry: {every: 2s}, wait: {timeout: 3h}}\n")
	want := `{"operation":"provision","timeout":"24h0m0s","stages":[{"name":"s","steps":[` +
		`{"name":"Starting","worker":"orchestrator","retry":{"every":"0s","timeout":"0s","scope":"stage"},"execution":"0s","onTimeout":"fail","onFailure":"fail"},` +
		`{"name":"A","worker":"a","when":"true","retry":{"every":"1.5s","timeout":"1h30m0s","scope":"step"},"execution":"1m0s","onTimeout":"skip","onFailure":"fail"},` +
		`{"name":"B","worker":"a","retry":{"every":"2s","timeout":"0s","scope":"stage"},"wait":{"every":"2s","timeout":"3h0m0s"},"execution":"1m0s","onTimeout":"fail","onFailure":"fail"}]}]}`
	if diff := cmp.Diff(want, string(p.Canonical())); diff != "" {
		t.Errorf("canonical form differs (-want +got):\n%s", diff)
	}
}

func TestParse_Canonical_RoundTrips(t *testing.T) {
	t.Parallel()
	for operation, p := range load(t) {
		parsed, err := process.Parse(p.Canonical())
		require.NoError(t, err)
		if diff := cmp.Diff(p.Stages, parsed.Stages, ignoreCondition); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", operation, diff)
		}
		if !parsed.Equal(p) || !bytes.Equal(parsed.Canonical(), p.Canonical()) {
			t.Errorf("%s: hash %s, want %s", operation, parsed.Hash(), p.Hash())
		}
	}
}

func TestCanonical_RetryWithoutGrowth_HasTheOldForm(t *testing.T) {
	t.Parallel()
	const format = "operation: provision\nstages:\n  - {name: s, steps: [{name: A, worker: a, retry: {every: 10s%s}}]}\n"
	old := single(t, fmt.Sprintf(format, ""))
	for _, settings := range []string{", factor: 1", ", factor: 1, max: 1m", ", jitter: 0", ", jitter: -0.0"} {
		if p := single(t, fmt.Sprintf(format, settings)); !p.Equal(old) {
			t.Errorf("%s has another hash: %s", settings, p.Canonical())
		}
	}
}

func TestCanonical_Growth_RoundTrips(t *testing.T) {
	t.Parallel()
	p := single(t, "operation: provision\nstages:\n"+
		"  - {name: s, steps: [{name: A, worker: a, retry: {every: 10s, max: 1m, factor: 1.5, jitter: 0.2}}]}\n")
	if want := `"retry":{"every":"10s","timeout":"0s","scope":"stage","factor":1.5,"max":"1m0s","jitter":0.2}`; !strings.Contains(string(p.Canonical()), want) {
		t.Errorf("canonical form %s does not contain %s", p.Canonical(), want)
	}
	parsed, err := process.Parse(p.Canonical())
	require.NoError(t, err)
	if diff := cmp.Diff(p.Stages, parsed.Stages, ignoreCondition); diff != "" || !parsed.Equal(p) {
		t.Errorf("the parsed definition differs:\n%s", diff)
	}
}

func TestCanonical_Systems_RoundTrip(t *testing.T) {
	t.Parallel()
	const format = "operation: provision\nstages:\n  - {name: s, steps: [{name: A, worker: a%s}]}\n"
	p := single(t, fmt.Sprintf(format, ", systems: [z, b, z]"))
	parsed, err := process.Parse(p.Canonical())
	require.NoError(t, err)
	for _, p := range []*process.Process{p, parsed} {
		if diff := cmp.Diff([]string{"b", "z"}, p.At(0, 0).CalledSystems()); diff != "" {
			t.Errorf("systems (-want +got):\n%s", diff)
		}
	}
	old := single(t, fmt.Sprintf(format, ""))
	if diff := cmp.Diff([]string{"a"}, old.At(0, 0).CalledSystems()); diff != "" {
		t.Errorf("systems by default (-want +got):\n%s", diff)
	}
	if p := single(t, fmt.Sprintf(format, ", systems: [a]")); !p.Equal(old) || bytes.Contains(p.Canonical(), []byte("systems")) {
		t.Errorf("the default written out has another form: %s", p.Canonical())
	}
}

// Operations keep the definition that they started with. Definitions that were stored before waits existed have none.
func TestParse_DefinitionWithoutWait_HasNone(t *testing.T) {
	t.Parallel()
	const stored = `{"operation":"provision","timeout":"24h0m0s","stages":[{"name":"s","steps":[` +
		`{"name":"A","worker":"a","retry":{"every":"10s","timeout":"5m0s","scope":"step"},"execution":"1m0s","onTimeout":"fail","onFailure":"fail"}]}]}`
	p, err := process.Parse([]byte(stored))
	require.NoError(t, err)
	if p.Stages[0].Steps[0].Waits() {
		t.Errorf("the step has a wait: %+v", p.Stages[0].Steps[0].Wait)
	}
	if diff := cmp.Diff(stored, string(p.Canonical())); diff != "" {
		t.Errorf("canonical form (-want +got):\n%s", diff)
	}
}

func TestParse_Conditions_AreCompiled(t *testing.T) {
	t.Parallel()
	parsed, err := process.Parse(load(t)[event.Provision].Canonical())
	require.NoError(t, err)
	two := step(t, process.Set{event.Provision: parsed}, "Two")
	for plan, want := range map[string]bool{"trial": false, "azure": true} {
		ok, err := two.Runs(&process.Input{Operation: &event.Operation{Plan: event.Plan{Name: plan}}})
		if err != nil || ok != want {
			t.Errorf("%s: %v, %v; want %v", plan, ok, err, want)
		}
	}
}

// Postgres may return the keys of JSON in another order.
func TestParse_KeyOrder_IsIgnored(t *testing.T) {
	t.Parallel()
	p := load(t)[event.Provision]
	var anyOrder map[string]any
	require.NoError(t, json.Unmarshal(p.Canonical(), &anyOrder))
	sorted, err := json.MarshalIndent(anyOrder, " ", "  ")
	require.NoError(t, err)
	parsed, err := process.Parse(sorted)
	require.NoError(t, err)
	if !parsed.Equal(p) {
		t.Errorf("hash %s, want %s", parsed.Hash(), p.Hash())
	}
}

func TestParse_InvalidDefinition_IsRejected(t *testing.T) {
	t.Parallel()
	const good = `{"operation":"provision","timeout":"1h","stages":[{"name":"s","steps":[{"name":"A","worker":"a","when":"true"}]}]}`
	_, err := process.Parse([]byte(good))
	require.NoError(t, err)
	tests := map[string]struct{ canonical, want string }{
		"not JSON":              {`{`, "parse process: unexpected EOF"},
		"more than one":         {good + good, "parse process: more than one JSON value"},
		"unknown key":           {strings.Replace(good, "timeout", "time", 1), `parse process: json: unknown field "time"`},
		"bad duration":          {strings.Replace(good, "1h", "1 h", 1), `parse process: time: unknown unit " h" in duration "1 h"`},
		"no stages":             {`{"operation":"provision"}`, `parse process "provision": no stages`},
		"a stage without steps": {`{"operation":"provision","stages":[{"name":"s"}]}`, `parse process "provision": stage "s" has no steps`},
		"bad condition": {
			strings.Replace(good, "true", "1", 1),
			`parse process "provision": step "A": when: the result is int, not bool`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := process.Parse([]byte(tc.canonical))
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestEqual_ComparesDefinitions(t *testing.T) {
	t.Parallel()
	set := load(t)
	var none *process.Process
	if none.Equal(set[event.Provision]) || set[event.Provision].Equal(none) || !none.Equal(nil) {
		t.Error("a process equals nil")
	}
	if set[event.Provision].Equal(set[event.Deprovision]) {
		t.Error("different processes are equal")
	}
}

// anyProcess generates a process file that Load accepts, as JSON, which is also YAML.
func anyProcess(t *rapid.T) []byte {
	duration := rapid.Map(rapid.IntRange(1, 3600_000), func(ms int) string { return fmt.Sprintf("%dms", ms) })
	policy := rapid.SampledFrom([]string{"fail", "skip"})
	name := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,10}`)
	stages := []any{}
	used := map[string]bool{}
	for _, stage := range rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "stages") {
		steps := []any{}
		for _, s := range rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "steps") {
			if used[s] {
				continue
			}
			used[s] = true
			step := map[string]any{
				"name": s, "worker": "w-" + rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "worker"),
				"retry": map[string]any{"timeout": duration.Draw(t, "timeout")},
			}
			if rapid.Bool().Draw(t, "waits") {
				step["wait"] = map[string]any{"timeout": duration.Draw(t, "wait timeout")}
			}
			for key, value := range map[string]*rapid.Generator[string]{
				"execution": duration, "onTimeout": policy, "onFailure": policy,
				"when": rapid.SampledFrom([]string{"true", `plan.name != "é"`, `"a" in credentials`, "has(parameters.x)"}),
			} {
				if rapid.Bool().Draw(t, key) {
					step[key] = value.Draw(t, key)
				}
			}
			steps = append(steps, step)
		}
		if len(steps) > 0 {
			stages = append(stages, map[string]any{"name": stage, "steps": steps})
		}
	}
	content, err := json.Marshal(map[string]any{"operation": "provision", "stages": stages})
	require.NoError(t, err)
	return content
}

func TestParse_RandomProcess_EqualsLoaded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set, err := process.Load(fstest.MapFS{"provision.yaml": {Data: anyProcess(t)}})
		require.NoError(t, err)
		loaded := set[event.Provision]
		parsed, err := process.Parse(loaded.Canonical())
		require.NoError(t, err)
		if parsed.Hash() != loaded.Hash() || !bytes.Equal(parsed.Canonical(), loaded.Canonical()) {
			t.Fatalf("canonical form changed:\n%s\n%s", loaded.Canonical(), parsed.Canonical())
		}
		if diff := cmp.Diff(loaded.Stages, parsed.Stages, ignoreCondition); diff != "" {
			t.Fatalf("stages differ (-loaded +parsed):\n%s", diff)
		}
	})
}
