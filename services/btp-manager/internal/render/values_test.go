package render_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

func TestRender_InvalidValue_IsNamed(t *testing.T) {
	manager := func(key string, v any) values { return values{"manager": values{key: v}} }
	secret := func(key string, v any) values { return manager("secret", values{key: v}) }
	key := "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"
	for name, c := range map[string]struct {
		values values
		want   []render.Problem
	}{
		"unknown":          {values{"mananger": values{}}, []render.Problem{{Field: "mananger", Text: "the chart has no such value"}}},
		"unknown, nested":  {manager("kubeRbacProxy", true), []render.Problem{{Field: "manager.kubeRbacProxy", Text: "the chart has no such value"}}},
		"unknown, deep":    {secret("client_id", "a"), []render.Problem{{Field: "manager.secret.client_id", Text: "the chart has no such value"}}},
		"taken away":       {values{"cluster": values{"id": nil}}, []render.Problem{{Field: "cluster.id", Text: "is missing"}}},
		"all taken away":   {values{"manager": nil}, []render.Problem{{Field: "manager", Text: "is missing"}}},
		"number":           {values{"cluster": values{"id": 7}}, []render.Problem{{Field: "cluster.id", Text: "is a number, must be string"}}},
		"no map":           {values{"cluster": "x"}, []render.Problem{{Field: "cluster", Text: "is a string, must be object"}}},
		"no fraction":      {values{"networkPolicies": values{"egressPorts": []any{1.5}}}, []render.Problem{{Field: "networkPolicies.egressPorts.0", Text: "is a number, must be integer"}}},
		"too large":        {values{"networkPolicies": values{"egressPorts": []any{65536}}}, []render.Problem{{Field: "networkPolicies.egressPorts.0", Text: "is 65536, must be at most 65535"}}},
		"no boolean":       {manager("enable_limited_cache", "true"), []render.Problem{{Field: "manager.enable_limited_cache", Text: "is a string, must be boolean"}}},
		"port":             {values{"networkPolicies": values{"egressPorts": []any{0}}}, []render.Problem{{Field: "networkPolicies.egressPorts.0", Text: "is 0, must be at least 1"}}},
		"same port":        {values{"networkPolicies": values{"egressPorts": []any{1, 1}}}, []render.Problem{{Field: "networkPolicies.egressPorts", Text: "has the same item twice"}}},
		"no port":          {values{"networkPolicies": values{"egressPorts": []any{}}}, []render.Problem{{Field: "networkPolicies.egressPorts", Text: "does not fit the schema: minItems"}}},
		"namespace":        {manager("management_namespace", "Not_A_Label"), []render.Problem{{Field: "manager.management_namespace", Text: "must match ^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$"}}},
		"long id":          {values{"cluster": values{"id": strings.Repeat("x", 1025)}}, []render.Problem{{Field: "cluster.id", Text: "is 1025 characters long, must be at most 1024"}}},
		"extra by name":    {secret("extra", values{"clientid": "YQ=="}), []render.Problem{{Field: "manager.secret.extra.clientid", Text: "cannot be set here"}}},
		"extra, no key":    {secret("extra", values{"a/b": "YQ=="}), []render.Problem{{Field: "manager.secret.extra.a/b", Text: "the chart has no such value"}}},
		"extra as text":    {secret("extra", values{"a": "no base64"}), []render.Problem{{Field: "manager.secret.extra.a", Text: "must match ^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}}},
		"private key":      {manager("certificates", values{"caBundle": bundle + key}), []render.Problem{{Field: "manager.certificates.caBundle", Text: "must match ^(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\\r\\n]+-----END CERTIFICATE-----[\\r\\n]*)*$"}}},
		"digest":           {manager("image", values{"sha": "sha256:1"}), []render.Problem{{Field: "manager.image.sha", Text: "must match ^([0-9a-f]{64})?$"}}},
		"two, by the name": {values{"cluster": values{"x": 1}, "a": 1}, []render.Problem{{Field: "a", Text: "the chart has no such value"}, {Field: "cluster.x", Text: "the chart has no such value"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := operandChart(t).Render(release(), c.values)
			invalid, ok := errors.AsType[*render.ValuesError](err)
			if !ok {
				t.Fatalf("the error is %v", err)
			}
			if diff := cmp.Diff(c.want, invalid.Problems); diff != "" {
				t.Errorf("the problems (-want +got):\n%s", diff)
			}
			if !strings.Contains(err.Error(), c.want[0].Field+": "+c.want[0].Text) {
				t.Errorf("the error does not contain it: %v", err)
			}
		})
	}
}

func TestRender_InvalidType_IsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		values values
		want   string
	}{
		"bytes":         {values{"manager": values{"secret": values{"clientid": []byte("x")}}}, "values: manager.secret.clientid: a value cannot be a []uint8"},
		"no UTF-8":      {values{"manager": values{"secret": values{"clientsecret": "a\xffb"}}}, "values: manager.secret.clientsecret: no valid UTF-8"},
		"in a list":     {values{"networkPolicies": values{"egressPorts": []any{1, struct{}{}}}}, "values: networkPolicies.egressPorts[1]: a value cannot be a struct {}"},
		"name no UTF-8": {values{"a\xff": "x"}, `values: the name "a\xff" is no valid UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := operandChart(t).Render(release(), c.values)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, must have %q", err, c.want)
			}
		})
	}
}

// A user may see this text in the condition of a BtpOperator.
func TestRender_Errors_ContainNoCredential(t *testing.T) {
	const secret = "hunter2-hunter2"
	for name, v := range map[string]values{
		"no map":          {"manager": values{"secret": secret}},
		"no text":         {"manager": values{"secret": values{"clientsecret": []any{secret}}}},
		"map":             {"manager": values{"secret": values{"clientsecret": values{"a": secret}}}},
		"bytes":           {"manager": values{"secret": values{"clientsecret": []byte(secret)}}},
		"no UTF-8":        {"manager": values{"secret": values{"clientsecret": secret + "\xff"}}},
		"extra":           {"manager": values{"secret": values{"extra": values{"a": secret}}}},
		"wrong namespace": {"manager": values{"management_namespace": secret + "_"}},
		"certificate":     {"manager": values{"certificates": values{"caBundle": secret}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := operandChart(t).Render(release(), v)
			if err == nil {
				t.Fatal("the values are taken")
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds the credential: %v", err)
			}
		})
	}
	c, err := render.Load(tiny(map[string]string{"templates/a.yaml": "apiVersion: v1\ndata: {a: {{ .Values.a }}}"}))
	require.NoError(t, err)
	_, err = c.Render(release(), values{"a": secret})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a document that is no object gives %v", err)
	}
}

func TestRender_NoSchema_AcceptsAllValues(t *testing.T) {
	c, err := render.Load(tiny(map[string]string{"templates/a.yaml": configMap("{{ .Values.a.b }}-{{ .Values.n }}-{{ len .Values.m }}")}))
	require.NoError(t, err)
	objs, err := c.Render(release(), values{"a": values{"b": "y"}, "n": int32(3), "m": values{"i64": int64(1), "f": 1.5, "b": true, "s": []string{"x"}}})
	require.NoError(t, err)
	if got := objs[0].Object["data"].(map[string]any)["x"]; got != "y-3-4" {
		t.Errorf("the values are %v", got)
	}
}
