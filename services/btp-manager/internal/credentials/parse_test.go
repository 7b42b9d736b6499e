package credentials_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/keb/services/btp-manager/internal/credentials"
)

// secret returns a complete Secret with changes: an empty string removes a key.
func secret(change map[string]string) *corev1.Secret {
	data := map[string][]byte{
		"clientid":     []byte("sb-1!b2|service-manager"),
		"clientsecret": []byte("s3cr3t=="),
		"sm_url":       []byte("https://service-manager.cfapps.example.com"),
		"tokenurl":     []byte("https://sub.authentication.example.com"),
		"cluster_id":   []byte("2f1c0e1a-5f0e-4a52-9d3c-0a8d3a4f7b11"),
	}
	for key, value := range change {
		if value == "" {
			delete(data, key)
			continue
		}
		data[key] = []byte(value)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: credentials.SecretName}, Data: data}
}

func TestParse_CompleteSecret_ReturnsCredentials(t *testing.T) {
	t.Parallel()
	got, err := credentials.Parse(secret(map[string]string{"credentials_namespace": "team-a", "tokenurlsuffix": "/token", "note": "x"}))
	require.NoError(t, err)
	want := credentials.Credentials{
		ClientID:     "sb-1!b2|service-manager",
		ClientSecret: "s3cr3t==",
		SMURL:        "https://service-manager.cfapps.example.com",
		TokenURL:     "https://sub.authentication.example.com",
		ClusterID:    "2f1c0e1a-5f0e-4a52-9d3c-0a8d3a4f7b11",
		Namespace:    "team-a",
		Extra:        map[string][]byte{"tokenurlsuffix": []byte("/token"), "note": []byte("x")},
	}
	if diff := cmp.Diff(fields(want), fields(got)); diff != "" {
		t.Error(diff)
	}
}

// fields converts credentials for cmp, which would otherwise print them with String.
func fields(c credentials.Credentials) map[string]any {
	return map[string]any{
		"ClientID": c.ClientID, "ClientSecret": c.ClientSecret, "SMURL": c.SMURL, "TokenURL": c.TokenURL,
		"ClusterID": c.ClusterID, "Namespace": c.Namespace, "Extra": c.Extra,
	}
}

func TestParse_EmptyNamespace_IsNone(t *testing.T) {
	t.Parallel()
	s := secret(nil)
	s.Data["credentials_namespace"] = []byte{}
	got, err := credentials.Parse(s)
	if err != nil || got.Namespace != "" || got.Extra != nil {
		t.Errorf("namespace %q, extra %v, error %v", got.Namespace, got.Extra, err)
	}
}

func TestParse_IncompleteSecret_NamesMissingKeys(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data map[string][]byte
		want credentials.IncompleteError
		text string
	}{
		"no data": {
			data: nil,
			want: credentials.IncompleteError{Missing: []string{"clientid", "clientsecret", "cluster_id", "sm_url", "tokenurl"}},
			text: "missing keys: clientid, clientsecret, cluster_id, sm_url, tokenurl",
		},
		"two keys missing": {
			data: secret(map[string]string{"cluster_id": "", "clientsecret": ""}).Data,
			want: credentials.IncompleteError{Missing: []string{"clientsecret", "cluster_id"}},
			text: "missing keys: clientsecret, cluster_id",
		},
		"two values empty": {
			data: with(secret(nil).Data, map[string]string{"cluster_id": "", "clientsecret": ""}),
			want: credentials.IncompleteError{Empty: []string{"clientsecret", "cluster_id"}},
			text: "keys without a value: clientsecret, cluster_id",
		},
		"values empty that are not read in order": {
			data: with(secret(nil).Data, map[string]string{"sm_url": "", "cluster_id": ""}),
			want: credentials.IncompleteError{Empty: []string{"cluster_id", "sm_url"}},
			text: "keys without a value: cluster_id, sm_url",
		},
		"a value of white space": {
			data: with(secret(nil).Data, map[string]string{"tokenurl": " \n"}),
			want: credentials.IncompleteError{Empty: []string{"tokenurl"}},
			text: "keys without a value: tokenurl",
		},
		"both": {
			data: with(secret(map[string]string{"sm_url": ""}).Data, map[string]string{"clientid": ""}),
			want: credentials.IncompleteError{Missing: []string{"sm_url"}, Empty: []string{"clientid"}},
			text: "missing keys: sm_url; keys without a value: clientid",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := credentials.Parse(&corev1.Secret{Data: tt.data})
			got, ok := errors.AsType[*credentials.IncompleteError](err)
			if !ok {
				t.Fatalf("error %v, want an IncompleteError", err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Error(diff)
			}
			if err.Error() != tt.text {
				t.Errorf("error %q, want %q", err, tt.text)
			}
		})
	}
}

// with sets values, including empty ones.
func with(data map[string][]byte, change map[string]string) map[string][]byte {
	data = maps.Clone(data)
	for key, value := range change {
		data[key] = []byte(value)
	}
	return data
}

func TestParse_InvalidValue_IsNotInError(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ key, value, problem string }{
		"secret with the end of line of echo":     {"clientsecret", "hush-hush\n", "begins or ends with white space"},
		"client ID with a space before it":        {"clientid", " hush-hush", "begins or ends with white space"},
		"secret on two lines":                     {"clientsecret", "hush\nhush-hush", "holds a control character"},
		"cluster ID that is not text":             {"cluster_id", "hush-hush\xff", "is not UTF-8"},
		"address without a scheme":                {"sm_url", "hush-hush.example.com", "has neither the scheme https nor http"},
		"address of another scheme":               {"sm_url", "ftp://hush-hush.example.com", "has neither the scheme https nor http"},
		"address without a host":                  {"tokenurl", "https:///hush-hush", "has no host"},
		"address with only a port":                {"tokenurl", "https://:443/hush-hush", "has no host"},
		"address that is none":                    {"tokenurl", "https://hush-hush:x", "is not a URL"},
		"address with credentials":                {"tokenurl", "https://u:hush-hush@example.com", "holds credentials"},
		"address with a query":                    {"sm_url", "https://example.com?hush-hush", "has a query or a fragment"},
		"address with an empty query":             {"sm_url", "https://hush-hush.example.com?", "has a query or a fragment"},
		"address with a fragment":                 {"sm_url", "https://example.com#hush-hush", "has a query or a fragment"},
		"namespace with capitals":                 {"credentials_namespace", "Hush-hush", "is not the name of a namespace"},
		"namespace with a dot":                    {"credentials_namespace", "hush-hush.a", "is not the name of a namespace"},
		"namespace of white space":                {"credentials_namespace", " ", "is not the name of a namespace"},
		"namespace that is longer than 63 octets": {"credentials_namespace", strings.Repeat("hush-hush", 8), "is not the name of a namespace"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := credentials.Parse(secret(map[string]string{tt.key: tt.value}))
			invalid, ok := errors.AsType[*credentials.InvalidError](err)
			if !ok {
				t.Fatalf("error %v, want an InvalidError", err)
			}
			if invalid.Key != tt.key || invalid.Problem != tt.problem || invalid.Allowed == "" {
				t.Errorf("got %+v", invalid)
			}
			if want := tt.key + " " + tt.problem + ": want " + invalid.Allowed; err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
			if strings.Contains(err.Error(), "ush-hush") {
				t.Errorf("error %q repeats the value", err)
			}
			if diff := cmp.Diff(fields(credentials.Credentials{}), fields(got)); diff != "" {
				t.Errorf("credentials beside the error: %s", diff)
			}
		})
	}
}

func TestParse_SeveralErrors_ReportsAll(t *testing.T) {
	t.Parallel()
	_, err := credentials.Parse(secret(map[string]string{"clientid": "", "sm_url": "example.com", "credentials_namespace": "A"}))
	if _, ok := errors.AsType[*credentials.IncompleteError](err); !ok {
		t.Errorf("error %v holds no IncompleteError", err)
	}
	if _, ok := errors.AsType[*credentials.InvalidError](err); !ok {
		t.Errorf("error %v holds no InvalidError", err)
	}
	for _, want := range []string{"missing keys: clientid; ", "sm_url has neither", "; credentials_namespace is not"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has more than one line", err)
	}
}

func TestParse_Result_SharesNoMemory(t *testing.T) {
	t.Parallel()
	s := secret(map[string]string{"note": "abc"})
	c, err := credentials.Parse(s)
	require.NoError(t, err)
	s.Data["note"][0] = 'z'
	if got := string(c.Extra["note"]); got != "abc" {
		t.Errorf("note %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("id", "s3cr3t", "https://sm.example.com", "https://token.example.com", "c-1", "team-a", "note")
	f.Add("", " ", "https://u:p@x", "http://[::1]:80?", "\xff", "A", "tls.crt")
	f.Add("a\n", "\x00", "//host", "https://%zz", " x", ".", "clientid")
	f.Fuzz(func(t *testing.T, id, pass, sm, token, cluster, namespace, extra string) {
		data := map[string][]byte{
			extra: []byte("more"), "clientid": []byte(id), "clientsecret": []byte(pass), "sm_url": []byte(sm), "tokenurl": []byte(token),
			"cluster_id": []byte(cluster), "credentials_namespace": []byte(namespace),
		}
		c, err := credentials.Parse(&corev1.Secret{Data: data})
		if err != nil {
			_, incomplete := errors.AsType[*credentials.IncompleteError](err)
			_, invalid := errors.AsType[*credentials.InvalidError](err)
			if !incomplete && !invalid {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		for key, value := range map[string]string{
			"clientid": c.ClientID, "clientsecret": c.ClientSecret, "sm_url": c.SMURL, "tokenurl": c.TokenURL, "cluster_id": c.ClusterID,
		} {
			if value == "" || value != strings.TrimSpace(value) || value != string(data[key]) {
				t.Errorf("%s: %q was accepted as %q", key, data[key], value)
			}
		}
		if c.Namespace != "" && len(validation.IsDNS1123Label(c.Namespace)) > 0 {
			t.Errorf("namespace %q was accepted", c.Namespace)
		}
		if c.Namespace != namespace {
			t.Errorf("namespace %q became %q", namespace, c.Namespace)
		}
		c.Values()
	})
}
