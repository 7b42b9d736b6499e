package credentials_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/credentials"
)

var full = credentials.Credentials{
	ClientID: "hush-id", ClientSecret: "hush-secret", SMURL: "https://hush-sm", TokenURL: "https://hush-token",
	ClusterID: "c-1", Namespace: "team-a", Extra: map[string][]byte{"note": []byte("hush-note")},
}

func TestValues_Credentials_BecomeChartValues(t *testing.T) {
	t.Parallel()
	c := full
	c.Extra = map[string][]byte{
		"tokenurlsuffix": []byte("/token"), "tls.crt": []byte("CERT"), "tls.key": []byte("KEY"), "blob": {0xff, 0x00},
	}
	want := map[string]any{
		"cluster": map[string]any{"id": "c-1"},
		"manager": map[string]any{
			"management_namespace": "team-a",
			"secret": map[string]any{
				"clientid": "hush-id", "clientsecret": "hush-secret", "sm_url": "https://hush-sm", "tokenurl": "https://hush-token",
				"tokenurlsuffix": "/token",
				"tls":            map[string]any{"crt": "CERT", "key": "KEY"},
				"extra":          map[string]any{"blob": "/wA="},
			},
		},
	}
	if diff := cmp.Diff(want, c.Values()); diff != "" {
		t.Error(diff)
	}
}

func TestValues_OptionalKeys_AreOmitted(t *testing.T) {
	t.Parallel()
	want := map[string]any{
		"cluster": map[string]any{"id": "c"},
		"manager": map[string]any{
			"secret": map[string]any{"clientid": "i", "clientsecret": "s", "sm_url": "u", "tokenurl": "t"},
		},
	}
	got := credentials.Credentials{ClientID: "i", ClientSecret: "s", SMURL: "u", TokenURL: "t", ClusterID: "c"}.Values()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCredentials_Printed_ShowNoSecrets(t *testing.T) {
	t.Parallel()
	holder := struct {
		C credentials.Credentials
		P *credentials.Credentials
	}{full, &full}
	printed := map[string]string{
		"String": full.String(), "GoString": full.GoString(), "MarshalLog": fmt.Sprint(full.MarshalLog()), "LogValue": full.LogValue().String(),
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%o", "%f"} {
		printed["value "+verb] = fmt.Sprintf(verb, full)
		printed["pointer "+verb] = fmt.Sprintf(verb, &full)
		printed["inside "+verb] = fmt.Sprintf(verb, holder)
	}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "value", full, "pointer", &full, "inside", holder)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "value", full, "pointer", &full, "inside", holder)
	printed["slog"] = out.String()
	raw, err := json.Marshal(holder)
	require.NoError(t, err)
	printed["JSON"] = string(raw)
	for how, text := range printed {
		for _, hidden := range []string{"hush", fmt.Sprintf("%x", "hush"), fmt.Sprintf("%X", "hush"), "104 117 115 104"} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s shows %q: %s", how, hidden, text)
			}
		}
	}
	if got := full.String(); got != `credentials of cluster "c-1" (namespace "team-a", extra keys ["note"])` {
		t.Error(got)
	}
}
