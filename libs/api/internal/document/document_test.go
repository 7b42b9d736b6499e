package document_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/internal/document"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

const (
	libsFolder = "../../.."
	apiFolder  = "../../../../api"
)

func TestEvents_GoTypes_MatchFiles(t *testing.T) {
	t.Parallel()
	files, err := document.Events(libsFolder)
	require.NoError(t, err)
	for name, content := range files {
		testkit.Golden(t, filepath.Join(apiFolder, filepath.FromSlash(name)), content)
	}
	onDisk, err := filepath.Glob(filepath.Join(apiFolder, "events", "*"))
	require.NoError(t, err)
	if len(onDisk) != len(event.Contract()) {
		t.Errorf("api/events holds %d files, want one for each of %d types", len(onDisk), len(event.Contract()))
	}
}

func TestDocuments_GoTypes_MatchFiles(t *testing.T) {
	t.Parallel()
	for _, d := range document.Documents() {
		content, err := d.Render(libsFolder, apiFolder)
		require.NoError(t, err)
		testkit.Golden(t, filepath.Join(apiFolder, d.File), content)
	}
}

func schemaOf(t testing.TB, typ event.Type) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join(apiFolder, "events", document.SchemaFile(typ)))
	require.NoError(t, err)
	return s
}

func members(t testing.TB, payload any) map[string]any {
	t.Helper()
	b, err := json.Marshal(payload)
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	return v.(map[string]any)
}

func TestSchemas_MissingRequiredMember_IsRejected(t *testing.T) {
	t.Parallel()
	for typ, payload := range testkit.Payloads() {
		t.Run(string(typ), func(t *testing.T) {
			t.Parallel()
			s := schemaOf(t, typ)
			doc := members(t, payload)
			require.NoError(t, s.Validate(doc), "the example was rejected")
			doc["addedLater"] = true
			if err := s.Validate(doc); err != nil {
				t.Errorf("a member added later was rejected: %v", err)
			}
			required := s.Ref.Required
			if len(required) == 0 {
				t.Fatal("the schema requires no member")
			}
			for _, name := range required {
				less := members(t, payload)
				delete(less, name)
				if err := s.Validate(less); err == nil {
					t.Errorf("a payload without %s was accepted", name)
				}
			}
		})
	}
}

func TestSchemas_ExampleMembers_AreDescribed(t *testing.T) {
	t.Parallel()
	for typ, payload := range testkit.Payloads() {
		properties := schemaOf(t, typ).Ref.Properties
		for name := range members(t, payload) {
			if properties[name] == nil {
				t.Errorf("the schema of %s lacks %s", typ, name)
			}
		}
	}
}

func TestAsyncAPI_References_Exist(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(apiFolder, "asyncapi.yaml"))
	require.NoError(t, err)
	for _, e := range event.Contract() {
		for _, want := range []string{"name: " + string(e.Type), "address: " + e.Subject, "$ref: events/" + document.SchemaFile(e.Type)} {
			if !strings.Contains(string(b), want) {
				t.Errorf("asyncapi.yaml lacks %q", want)
			}
		}
	}
}
