package docpage

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// step is a step with the members in a fragment of YAML.
func step(fragment string) string {
	members := map[string]any{"name": "Hello_World", "worker": "hello-world"}
	if err := yaml.Unmarshal([]byte("{"+fragment+"}"), &members); err != nil {
		return err.Error()
	}
	raw, err := json.Marshal(members)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// overlay returns a file with a fragment of a type.
func overlay(of, fragment string) string {
	switch of {
	case "Step", "Retry", "Wait":
		return "operation: provision\nchanges: [add: {stage: post_actions, step: " + step(fragment) + "}]"
	case "stageFile":
		stage := map[string]string{"name": "name: audit", "steps": "steps: [{name: Audit, worker: hello-world}]"}
		key, _, _ := strings.Cut(fragment, ":")
		stage[key] = fragment
		return "operation: provision\nchanges: [addStage: {" + strings.Join(slices.Sorted(maps.Values(stage)), ", ") + "}]"
	case "overlayFile":
		if strings.HasPrefix(fragment, "operation") {
			return fragment + "\nchanges: [disable: EDP_Registration]"
		}
		return "operation: provision\n" + fragment
	}
	return "operation: provision\nchanges: [{" + fragment + "}]"
}

// processFile is a process file with a fragment.
func processFile(fragment string) string {
	members := map[string]string{"operation": "operation: update", "stages": "stages: [{name: start, steps: [{name: Starting, worker: orchestrator}]}]"}
	key, _, _ := strings.Cut(fragment, ":")
	members[key] = fragment
	return strings.Join(slices.Sorted(maps.Values(members)), "\n")
}

func load(overlay string) (process.Set, error) {
	return process.Load(processes.FS, fstest.MapFS{"overlay.yaml": {Data: []byte(overlay)}})
}

// Every example is valid for the reader and for the schema.
func TestMembers_Examples_AreAccepted(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	members, err := formatMembers(root)
	require.NoError(t, err)
	if len(members) < 35 {
		t.Errorf("only %d members", len(members))
	}
	for _, m := range members {
		text := ""
		if m.Of == "processFile" {
			text = processFile(m.Example)
			_, err = process.Load(fstest.MapFS{"update.yaml": {Data: []byte(text)}})
		} else {
			text = overlay(m.Of, m.Example)
			_, err = load(text)
		}
		if err != nil || !strings.Contains(m.Example, m.Key) {
			t.Errorf("%s.%s: %s: %v", m.Of, m.Key, text, err)
		}
		if err := validate(schema, text); err != nil {
			t.Errorf("%s.%s: %s: schema: %v", m.Of, m.Key, text, err)
		}
	}
}

// Defaults, allowed values and ranges on the page are those of the reader.
func TestMembers_Rules_AreThoseOfTheReader(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	members, err := formatMembers(root)
	require.NoError(t, err)
	checked := 0
	accepts := func(m Member, value string, want bool) *process.Process {
		checked++
		fragment := m.Key + ": " + value
		switch {
		case m.Of == "Retry":
			fragment = "retry: {" + fragment + ", max: 1h}"
			if m.Key != "factor" {
				fragment = strings.Replace(fragment, ", max: 1h", "", 1)
			}
		case m.Key == "onTimeout":
			fragment += ", retry: {timeout: 5m}"
		}
		text := overlay(m.Of, fragment)
		if m.Of == "overlayFile" {
			text = fragment + "\nchanges: [retime: {timeout: 30h}]"
		}
		set, err := load(text)
		if (err == nil) != want {
			t.Errorf("%s: accepted %t, want %t: %v", text, err == nil, want, err)
		}
		if err := validate(schema, text); (err == nil) != want {
			t.Errorf("%s: schema: accepted %t, want %t: %v", text, err == nil, want, err)
		}
		return set[event.Provision]
	}
	plain := func(m Member) *process.Process {
		fragment := ""
		if m.Key == "onTimeout" {
			fragment = "retry: {timeout: 5m}"
		}
		set, err := load(overlay("Step", fragment))
		require.NoError(t, err)
		return set[event.Provision]
	}
	for _, m := range members {
		if m.Of == "processFile" {
			continue
		}
		for _, v := range m.Allowed {
			accepts(m, v.Name, true)
		}
		if len(m.Allowed) > 0 {
			accepts(m, "other", false)
		}
		if m.Default != "" {
			if given := accepts(m, m.Default, true); !given.Equal(plain(m)) {
				t.Errorf("%s.%s: the default is not %s", m.Of, m.Key, m.Default)
			}
		}
		if m.Minimum != "" {
			accepts(m, m.Minimum, true)
			accepts(m, m.Maximum, true)
			accepts(m, "-0.1", false)
			accepts(m, m.Maximum+"1", false)
		}
		if m.Format == "name" && m.Of == "Step" && !m.List {
			accepts(m, "'with blank'", false)
		}
	}
	if checked < 30 {
		t.Errorf("only %d rules were checked", checked)
	}
	if set, err := process.Load(fstest.MapFS{"update.yaml": {Data: []byte(processFile(""))}}); err != nil || set[event.Update].Timeout != process.DefaultTimeout {
		t.Errorf("timeout of a process: %v", err)
	}
}

func TestSchema_Files_AreAccepted(t *testing.T) {
	t.Parallel()
	schema, found := compile(t), 0
	for _, folder := range []string{"services/orchestrator/processes", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil || !strings.Contains("\n"+string(content), "\noperation: ") {
				return err
			}
			found++
			return validate(schema, string(content))
		})
		if err != nil {
			t.Error(err)
		}
	}
	if found < 10 {
		t.Errorf("only %d files", found)
	}
}

func TestSchema_Mistakes_AreRejected(t *testing.T) {
	t.Parallel()
	schema := compile(t)
	for _, text := range []string{
		"operation: provision",
		"operation: provision\nchanges: []",
		"operation: provision\nchanges: [{}]",
		"operation: provision\nchanges: [{disable: A, move: {step: B, after: C}}]",
		"operation: provision\nchanges: [add: {step: {name: A, worker: b}}]",
		"operation: provision\nchanges: [add: {after: B, step: {name: A}}]",
		"operation: provision\nchanges: [add: {after: B, step: {name: A, worker: b, retries: 3}}]",
		"operation: provision\nchanges: [retime: {step: A, retry: {every: 5}}]",
		"operation: provision\nchanges: [retime: {step: A, worker: b}]",
		"operation: provision\nstages: [{name: a}]",
	} {
		if validate(schema, text) == nil {
			t.Errorf("accepted: %s", text)
		}
		if _, err := load(text); err == nil {
			t.Errorf("the reader accepts: %s", text)
		}
	}
}

func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, err := processSchema(root)
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("process.json", document))
	schema, err := c.Compile("process.json")
	require.NoError(t, err)
	return schema
}

// validate compares each YAML document of a file with the schema.
func validate(schema *jsonschema.Schema, text string) error {
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var document any
		if err := dec.Decode(&document); err != nil {
			if err.Error() == "EOF" {
				return nil
			}
			return err
		}
		raw, err := json.Marshal(document)
		if err != nil {
			return err
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
		if err != nil {
			return err
		}
		if err := schema.Validate(value); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
}
