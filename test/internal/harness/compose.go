package harness

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// Composition says which services of docker-compose.yml there are, and how they differ.
type Composition struct {
	// Values replace variables, which otherwise have their defaults.
	Values map[string]string
	// Profiles are those that are on.
	Profiles []string
	// Override is a file that changes environments.
	Override string
}

// Compose returns the services of docker-compose.yml that run a command of this repository all the time.
func Compose(t testing.TB, root string, c Composition) map[string]Service {
	t.Helper()
	services, overrides := c.read(t, filepath.Join(root, "docker-compose.yml")), map[string]Service{}
	if c.Override != "" {
		overrides = c.read(t, filepath.Join(root, c.Override))
	}
	for name, s := range services {
		if len(s.Profiles) > 0 && !slices.Contains(c.Profiles, s.Profiles[0]) {
			delete(services, name)
			continue
		}
		maps.Copy(s.Environment, overrides[name].Environment)
	}
	if len(services) < 10 {
		t.Fatalf("docker-compose.yml has only %d services", len(services))
	}
	return services
}

func (c Composition) read(t testing.TB, path string) map[string]Service {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text = composeVariable.ReplaceAllFunc(text, func(match []byte) []byte {
		found := composeVariable.FindSubmatch(match)
		if value, ok := c.Values[string(found[1])]; ok {
			return []byte(value)
		}
		return found[2]
	})
	var file struct{ Services map[string]yaml.Node }
	require.NoError(t, yaml.Unmarshal(text, &file))
	services := map[string]Service{}
	for name, node := range file.Services {
		if name != "broker" && name != "orchestrator" && name != "landscape" && !strings.HasPrefix(name, "worker-") {
			continue
		}
		var s Service
		require.NoErrorf(t, node.Decode(&s), "%s: service %s", path, name)
		services[name] = s
	}
	return services
}

var composeVariable = regexp.MustCompile(`\$\{([A-Z0-9_]+):-([^}]*)\}`)

// Env is the environment of the service with texts replaced, and with the variables of own instead of its.
func (s Service) Env(replace *strings.Replacer, own map[string]string) []string {
	var env []string
	for name, value := range s.Environment {
		if _, set := own[name]; !set {
			env = append(env, name+"="+replace.Replace(value))
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

// program is the name of the service's command in deploy/docker/images.
func (s Service) program() string {
	name, _, _ := strings.Cut(filepath.Base(s.Image), ":")
	return name
}

// Program builds the command that the image of a service runs, once for a test binary.
func (s Service) Program(t testing.TB, root string) string {
	t.Helper()
	return Build(t, folderOf(t, root, s.program()), s.program())
}

// ProgramOf builds the command that the image of a service runs in a release.
func (s Service) ProgramOf(t testing.TB, r *Release) string {
	t.Helper()
	return r.Program(t, s.program())
}

// folderOf is the folder of an image's command, without "./".
func folderOf(t testing.TB, root, image string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "deploy/docker/images"))
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == image {
			return strings.TrimPrefix(fields[1], "./")
		}
	}
	t.Fatalf("deploy/docker/images has no %s", image)
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
	return MakeSecretsWith(t, Keb(t), dir, args...)
}

// MakeSecretsWith is MakeSecrets with the keb of a release.
func MakeSecretsWith(t testing.TB, keb, dir string, args ...string) Secrets {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), keb, append([]string{"secrets", "init", "--dir", dir}, args...)...)
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
