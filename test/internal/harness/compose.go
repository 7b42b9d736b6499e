package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Service is a service of docker-compose.yml.
type Service struct {
	Image       string
	Command     []string
	Environment map[string]string
	Profiles    []string
	Healthcheck struct{ Test []string }
}

// Compose returns the services of docker-compose.yml whose images are built from this repository and which run all the time, and those of
// the profiles. values replace its variables, which otherwise have their defaults.
func Compose(t testing.TB, root string, values map[string]string, profiles ...string) map[string]Service {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	require.NoError(t, err)
	text = composeVariable.ReplaceAllFunc(text, func(match []byte) []byte {
		found := composeVariable.FindSubmatch(match)
		if value, ok := values[string(found[1])]; ok {
			return []byte(value)
		}
		return found[2]
	})
	var file struct{ Services map[string]yaml.Node }
	require.NoError(t, yaml.Unmarshal(text, &file))
	wanted := map[string]bool{}
	for _, profile := range profiles {
		wanted[profile] = true
	}
	services := map[string]Service{}
	for name, node := range file.Services {
		if name != "broker" && name != "orchestrator" && name != "landscape" && !strings.HasPrefix(name, "worker-") {
			continue
		}
		var s Service
		require.NoErrorf(t, node.Decode(&s), "docker-compose.yml: service %s", name)
		if len(s.Profiles) == 0 || wanted[s.Profiles[0]] {
			services[name] = s
		}
	}
	return services
}

var composeVariable = regexp.MustCompile(`\$\{([A-Z0-9_]+):-([^}]*)\}`)

// program is the name of the service's command in deploy/docker/images.
func (s Service) program() string {
	name, _, _ := strings.Cut(filepath.Base(s.Image), ":")
	return name
}

// Program builds the command that the image of a service runs, once for a test binary.
func (s Service) Program(t testing.TB, root string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "deploy/docker/images"))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == s.program() {
			return Build(t, strings.TrimPrefix(fields[1], "./"), fields[0])
		}
	}
	t.Fatalf("deploy/docker/images has no %s", s.program())
	return ""
}

// Secrets is a folder that "keb secrets init" has made: a folder for each service.
type Secrets struct {
	t   testing.TB
	Dir string
}

// MakeSecrets runs "keb secrets init" with further arguments. It makes what is missing.
func MakeSecrets(t testing.TB, dir string, args ...string) Secrets {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Keb(t), append([]string{"secrets", "init", "--dir", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "keb secrets init: %s", out)
	return Secrets{t, dir}
}

// Path is that of a file of a service.
func (s Secrets) Path(service, name string) string { return filepath.Join(s.Dir, service, name) }

// Read returns the content of a file, "broker/osb-password", without space around it.
func (s Secrets) Read(name string) string {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Dir, name))
	require.NoError(s.t, err)
	return strings.TrimSpace(string(raw))
}

// MakeUsers makes the users of broker and orchestrator, as deploy/postgres/init.sh does.
func (s Secrets) MakeUsers(db *sqlx.DB) {
	s.t.Helper()
	statements := []string{`REVOKE ALL ON DATABASE keb FROM PUBLIC`, `REVOKE ALL ON SCHEMA public FROM PUBLIC`}
	for _, user := range []string{"broker", "orchestrator"} {
		statements = append(statements, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, user, s.Read("postgres/"+user+"-password")),
			`GRANT CONNECT, CREATE, TEMPORARY ON DATABASE keb TO `+user)
	}
	for _, statement := range statements {
		_, err := db.ExecContext(s.t.Context(), statement)
		require.NoError(s.t, err)
	}
}
