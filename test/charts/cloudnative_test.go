package charts_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"
)

// cloudNativePG is the module whose CustomResourceDefinition the example must fulfil.
const cloudNativePG = "github.com/cloudnative-pg/cloudnative-pg@v1.27.0"

const examplesDir = kebDir + "examples/"

// TestCloudNativePG_Example_FulfilsItsCRD checks the Cluster of the examples as an API server with CloudNativePG would.
func TestCloudNativePG_Example_FulfilsItsCRD(t *testing.T) {
	t.Parallel()
	internal := clusterSchema(t)
	structural, err := schema.NewStructural(internal)
	require.NoError(t, err)
	validator, _, err := validation.NewSchemaValidator(internal)
	require.NoError(t, err)
	problems := func(text string) (all []string) {
		var object map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &object))
		all = pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		for _, err := range validation.ValidateCustomResource(nil, object, validator) {
			all = append(all, err.Error())
		}
		return all
	}
	text := readFile(t, examplesDir+"cloudnative-pg.yaml")
	if found := problems(text); len(found) > 0 {
		t.Errorf("the example does not fulfil the CRD: %s", strings.Join(found, "; "))
	}
	for old, wrong := range map[string]string{"method: any": "method: all", "dataDurability": "durability", "instances: 3": "instances: three"} {
		if len(problems(strings.Replace(text, old, wrong, 1))) == 0 {
			t.Errorf("%s instead of %s is not found", wrong, old)
		}
	}
}

// clusterSchema returns the schema of a Cluster.
func clusterSchema(t *testing.T) *apiextensions.JSONSchemaProps {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", cloudNativePG)
	download.Dir = t.TempDir()
	out, err := download.Output()
	require.NoErrorf(t, err, "%s\n%s", download, out)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	text, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", "bases", "postgresql.cnpg.io_clusters.yaml"))
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict(text, &crd))
	require.Len(t, crd.Spec.Versions, 1)
	var internal apiextensions.JSONSchemaProps
	require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil))
	return &internal
}

// TestCloudNativePG_Values_ConnectToTheCluster checks the values of the examples against the Secrets that CloudNativePG makes for the Cluster:
// NAME-app with the key uri, and NAME-ca with the key ca.crt.
func TestCloudNativePG_Values_ConnectToTheCluster(t *testing.T) {
	t.Parallel()
	var cluster struct {
		Metadata struct{ Name string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(readFile(t, examplesDir+"cloudnative-pg.yaml")), &cluster))
	seen := 0
	for _, w := range workloads(rendered(t, merged(t, production, readFile(t, examplesDir+"cloudnative-pg-values.yaml")))) {
		for _, e := range w.pod.Spec.Containers[0].Env {
			if e.Name != "KEB_DATABASE_URL" {
				continue
			}
			seen++
			if ref := e.ValueFrom.SecretKeyRef; ref.Name != cluster.Metadata.Name+"-app" || ref.Key != "uri" {
				t.Errorf("%s reads the address from key %s of Secret %s", w.component(), ref.Key, ref.Name)
			}
			files := false
			for _, v := range w.pod.Spec.Volumes {
				files = files || v.Secret != nil && v.Secret.SecretName == cluster.Metadata.Name+"-ca"
			}
			if !files || environment(w.pod.Spec.Containers[0])["KEB_DATABASE_CA_FILE"] == "" {
				t.Errorf("%s does not verify the server", w.component())
			}
		}
	}
	if seen < 2 {
		t.Errorf("%d containers have an address of the database", seen)
	}
}
