package testkit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// Vector is one case of a file in api/vectors: the result of a function for an input.
type Vector[In, Out any] struct {
	Name string
	In   In
	Out  Out
}

// vectorFile is a file in api/vectors.
type vectorFile struct {
	About string                                     `json:"about"`
	Cases []Vector[json.RawMessage, json.RawMessage] `json:"cases"`
}

// MarshalJSON uses the names of the members in the files.
func (v Vector[In, Out]) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := vectorEncoder(&b).Encode(struct {
		Name string `json:"name"`
		In   In     `json:"in"`
		Out  Out    `json:"out"`
	}{v.Name, v.In, v.Out})
	return b.Bytes(), err
}

func vectorEncoder(b *bytes.Buffer) *json.Encoder {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	return encoder
}

// Vectors compares the cases of a file in api/vectors with the results of f. With -update it writes the results into the file.
func Vectors[In, Out any](t *testing.T, name string, f func(In) Out) {
	t.Helper()
	file := readVectors(t, name)
	for i := range file.Cases {
		c := &file.Cases[i]
		var in In
		require.NoError(t, json.Unmarshal(c.In, &in), c.Name)
		var b bytes.Buffer
		require.NoError(t, vectorEncoder(&b).Encode(f(in)), c.Name)
		got := b.Bytes()
		if Update() {
			c.Out = got
			continue
		}
		if diff := cmp.Diff(decoded(t, c.Out), decoded(t, got)); diff != "" {
			t.Errorf("%s: %s: the result differs (-file +got):\n%s", name, c.Name, diff)
		}
	}
	if !Update() {
		return
	}
	var b bytes.Buffer
	encoder := vectorEncoder(&b)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(file))
	// Other tests may read the file at the same time.
	path := vectorPath(t, name)
	require.NoError(t, os.WriteFile(path+".new", b.Bytes(), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
}

// ReadVectors returns the cases of a file in api/vectors.
func ReadVectors[In, Out any](t *testing.T, name string) []Vector[In, Out] {
	t.Helper()
	var cases []Vector[In, Out]
	for _, raw := range readVectors(t, name).Cases {
		c := Vector[In, Out]{Name: raw.Name}
		require.NoError(t, json.Unmarshal(raw.In, &c.In), c.Name)
		require.NoError(t, json.Unmarshal(raw.Out, &c.Out), c.Name)
		cases = append(cases, c)
	}
	return cases
}

func readVectors(t *testing.T, name string) vectorFile {
	t.Helper()
	raw, err := os.ReadFile(vectorPath(t, name))
	require.NoError(t, err)
	var file vectorFile
	require.NoError(t, json.Unmarshal(raw, &file), name)
	names := map[string]bool{}
	for i := range file.Cases {
		c := &file.Cases[i]
		c.In, c.Out = compact(t, c.In), compact(t, c.Out)
		if c.Name == "" || names[c.Name] {
			t.Errorf("%s: the name %q is empty or duplicated", name, c.Name)
		}
		names[c.Name] = true
	}
	if len(names) < 5 {
		t.Errorf("%s has %d cases, which cannot be all", name, len(names))
	}
	return file
}

// vectorPath returns the path of a file in api/vectors. The working folder of a test is that of its package.
func vectorPath(t *testing.T, name string) string {
	t.Helper()
	folder, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.work")); err == nil {
			return filepath.Join(folder, "api", "vectors", name)
		}
		up := filepath.Dir(folder)
		if up == folder {
			t.Fatal("no parent folder contains go.work")
		}
		folder = up
	}
}

// compact returns JSON without the spaces of the file.
func compact(t *testing.T, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, raw))
	return b.Bytes()
}

// decoded returns JSON as a value to compare. Numbers keep their text.
func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	require.NoError(t, decoder.Decode(&v))
	return v
}
