package compose

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	overrideFile = "docker-compose.tls.yml"
	// mutual lets the APIs demand certificates, too.
	mutual     = "KEB_TLS_CLIENT_CA_FILE"
	mutualFile = "/run/keb/ca.crt"
)

// changes is what an override says.
type changes struct {
	Services map[string]struct {
		Environment map[string]string
		Command     []string
		Volumes     []string
		GroupAdd    []string `yaml:"group_add"`
		Healthcheck struct{ Test []string }
	}
	Volumes map[string]any
}

// override is docker-compose.tls.yml.
func override(t *testing.T) changes {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, overrideFile))
	require.NoError(t, err)
	var f changes
	text = bytes.ReplaceAll(text, []byte("${"+mutual+":-}"), []byte(mutualFile))
	require.NoError(t, yaml.Unmarshal(variable.ReplaceAll(text, []byte("$2")), &f))
	return f
}

// Compose 1, which some distributions still have, knows no other form than a variable with a default.
func TestCompose_VariableSyntax_IsPortable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker-compose.yml", overrideFile} {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		for line := range strings.Lines(string(variable.ReplaceAll(text, nil))) {
			if strings.Contains(line, "$") {
				t.Errorf("%s: %q has a variable that is not of the form ${NAME:-default}", name, strings.TrimSpace(line))
			}
		}
	}
}

func TestComposeTLS_EachContainer_HasItsFiles(t *testing.T) {
	t.Parallel()
	plain, tls := read(t), override(t)
	const own = "/run/keb/"
	for name, service := range plain.Services {
		env := tls.Services[name].Environment
		if strings.HasPrefix(service.Environment["KEB_NATS_URL"], "nats://") {
			if env["KEB_NATS_URL"] != "tls://nats:4222" || env["KEB_NATS_CA_FILE"] != own+"ca.crt" || env["KEB_NATS_CERT_FILE"] != own+"tls.crt" || env["KEB_NATS_KEY_FILE"] != own+"tls.key" {
				t.Errorf("%s reaches NATS with %v", name, env)
			}
		}
		if service.Environment["KEB_DATABASE_URL_FILE"] != "" {
			for _, prefix := range []string{"KEB_DATABASE_", "KEB_TLS_"} {
				if env[prefix+"CERT_FILE"] != own+"tls.crt" || env[prefix+"KEY_FILE"] != own+"tls.key" {
					t.Errorf("%s: %s is %v", name, prefix, env)
				}
			}
			if env["KEB_DATABASE_CA_FILE"] != own+"ca.crt" || env["KEB_TLS_CLIENT_CA_FILE"] != own+"ca.crt" {
				t.Errorf("%s: %v", name, env)
			}
		}
	}
	for name, service := range tls.Services {
		if _, ok := plain.Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
		// What a variable names is in the volume of the service.
		mounted := false
		for _, v := range append(plain.Services[name].Volumes, service.Volumes...) {
			mounted = mounted || strings.HasSuffix(v, ":/run/keb:ro")
		}
		for variable, path := range service.Environment {
			if strings.HasPrefix(path, own) && !mounted {
				t.Errorf("%s: %s=%s, and nothing is mounted there", name, variable, path)
			}
		}
	}
	if got := tls.Services["postgres"]; !strings.Contains(strings.Join(got.Command, " "), "hba_file=/run/keb/pg_hba.conf") || len(got.GroupAdd) != 1 {
		t.Errorf("postgres: %+v", got)
	}
	if got := tls.Services["init"]; !strings.Contains(strings.Join(got.Command, " "), "--tls") || len(got.Volumes) != 1 || len(tls.Volumes) != 1 {
		t.Errorf("init: %+v", got)
	}
	if got := tls.Services["edge"].Healthcheck.Test; !strings.Contains(strings.Join(got, " "), "https://localhost:8081/healthz") {
		t.Errorf("the edge asks %v", got)
	}
}
