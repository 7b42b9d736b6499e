// Package installation creates what an installation with Docker Compose needs: the passwords, keys and certificates of each service, the
// configuration of the NATS server, and forwarders of ports.
package installation

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
)

// KeptIn is the folder with all secrets. Only Init should have access to it.
const KeptIn = "init"

// Names of the files with secrets for users.
const (
	OSBPassword     = "osb-password"
	OperatorToken   = "operator-token"
	ViewerToken     = "viewer-token"
	GrafanaPassword = "grafana-password"
	SignalPassword  = "nats-signal-password"
)

const (
	// Other users than the creator read the files; each folder is mounted into its service only.
	fileMode   = 0o444
	folderMode = 0o755
	// Only their creator reads the files in KeptIn.
	keptFileMode   = 0o400
	keptFolderMode = 0o700
)

// Config configures Init.
type Config struct {
	// Dir is the target folder. Init creates a folder for each service in it.
	Dir string
	// Workers are the names of the workers.
	Workers []string
	// DatabaseHost is the host and port of Postgres, Database the name of the database.
	DatabaseHost, Database string
	// TLS creates certificates for all services, and makes NATS and Postgres require them. Folders are named after their services.
	TLS bool
	// Writable lists folders that other users may write to, because a new volume belongs to the user who created it.
	Writable []string
}

// Init creates missing secrets and keeps existing ones. It runs at each start: a new worker gets its password, and secrets that
// are in use do not change.
func Init(cfg Config) error {
	for _, dir := range cfg.Writable {
		if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
			return fmt.Errorf("secrets: %w", err)
		}
	}
	// Older versions created the folder with folderMode.
	if err := os.Chmod(filepath.Join(cfg.Dir, KeptIn), keptFolderMode); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("secrets: %w", err)
	}
	s := &store{dir: cfg.Dir}
	for _, folder := range folders(cfg) {
		for _, file := range folder.files {
			content, err := file.content(s)
			if err != nil {
				return fmt.Errorf("secrets: %s of %s: %w", file.name, folder.name, err)
			}
			if err := write(filepath.Join(cfg.Dir, folder.name), file.name, content, file.mode); err != nil {
				return fmt.Errorf("secrets: %w", err)
			}
		}
	}
	return nil
}

// Folders returns the names of the folders that Init fills, except KeptIn.
func Folders(cfg Config) []string {
	var names []string
	for _, folder := range folders(cfg) {
		names = append(names, folder.name)
	}
	return names
}

type folder struct {
	name  string
	files []file
}

type file struct {
	name    string
	content func(*store) (string, error)
	// mode is fileMode if zero.
	mode fs.FileMode
}

// folders returns the files of each service.
func folders(cfg Config) []folder {
	password := func(kept string) func(*store) (string, error) {
		return func(s *store) (string, error) { return s.get(kept, newPassword) }
	}
	key := func(kept string) func(*store) (string, error) {
		return func(s *store) (string, error) { return s.get(kept, newKeyring) }
	}
	bus := func(user string) file { return file{name: "nats-password", content: password("nats-" + user)} }
	database := func(user string) file {
		return file{name: "database-url", content: func(s *store) (string, error) {
			p, err := s.get("postgres-"+user, newPassword)
			mode := "disable"
			if cfg.TLS {
				mode = "verify-full"
			}
			return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=%s", user, p, cfg.DatabaseHost, cfg.Database, mode), err
		}}
	}
	osb := file{name: OSBPassword, content: password("osb")}
	tokens := file{name: "access-tokens.yaml", content: accessTokens}
	all := []folder{
		{"postgres", []file{
			{name: "postgres-password", content: password("postgres")},
			{name: "broker-password", content: password("postgres-broker")},
			{name: "orchestrator-password", content: password("postgres-orchestrator")},
		}},
		{"nats", []file{{name: "nats.conf", content: func(s *store) (string, error) { return natsConf(s, cfg) }}}},
		{"broker", []file{database("broker"), bus(event.UserBroker), osb, {name: "seal-keys", content: key("seal-keys")}, tokens}},
		{"orchestrator", []file{database("orchestrator"), bus(event.UserOrchestrator), tokens, {name: "session-key", content: key("session-key")}, {name: "webhook-keys", content: key("webhook-keys")}}},
		{"cli", []file{
			osb,
			{name: OperatorToken, content: password(OperatorToken)},
			{name: ViewerToken, content: password(ViewerToken)},
			{name: GrafanaPassword, content: password("grafana")},
			bus(event.UserMonitor),
			{name: SignalPassword, content: password("nats-" + event.UserSignal)},
		}},
		{"grafana", []file{{name: GrafanaPassword, content: password("grafana")}}},
	}
	for _, worker := range cfg.Workers {
		if worker == event.UserBroker || worker == event.UserOrchestrator {
			continue // their folders are listed above
		}
		user := event.WorkerUserName(worker)
		all = append(all, folder{user, []file{bus(user), {name: "stage-keys", content: key("stage-keys")}}})
	}
	if cfg.TLS {
		all = withCertificates(all)
	}
	return all
}

func accessTokens(s *store) (string, error) {
	var out strings.Builder
	for _, token := range []struct{ name, role string }{{OperatorToken, "operator"}, {ViewerToken, "viewer"}} {
		value, err := s.get(token.name, newPassword)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(value))
		fmt.Fprintf(&out, "- {name: %s, role: %s, sha256: %s}\n", token.role, token.role, hex.EncodeToString(sum[:]))
	}
	return out.String(), nil
}

func natsConf(s *store, cfg Config) (string, error) {
	var encryption NATSTLS
	if cfg.TLS {
		encryption = NATSTLS{CertFile: mountedAt + certFile, KeyFile: mountedAt + keyFile, ClientCAFile: mountedAt + caFile}
	}
	conf, err := RenderNATS(NATSConfig{Workers: cfg.Workers, TLS: encryption, Password: func(user string) (string, error) {
		password, err := s.get("nats-"+user, newPassword)
		if err != nil {
			return "", err
		}
		// The minimum cost is enough for random passwords. With the usual cost a server is overloaded after a restart, when all clients
		// log on at the same time: they time out and retry, and the server never catches up.
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		return `"` + string(hash) + `"`, err
	}})
	return string(conf), err
}

// store reads and writes the folder KeptIn.
type store struct{ dir string }

// get returns the secret with a name. The first call creates it.
func (s *store) get(name string, make func() (string, error)) (string, error) {
	kept := filepath.Join(s.dir, KeptIn)
	content, err := os.ReadFile(filepath.Join(kept, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		value, err := make()
		if err != nil {
			return "", err
		}
		return value, s.keep(name, value)
	case err != nil:
		return "", err
	case len(content) == 0:
		return "", fmt.Errorf("%s is empty: remove it to have a new one created", name)
	}
	return string(content), nil
}

// keep stores a secret under a name.
func (s *store) keep(name, value string) error {
	kept := filepath.Join(s.dir, KeptIn)
	if err := os.MkdirAll(kept, keptFolderMode); err != nil {
		return err
	}
	return write(kept, name, value, keptFileMode)
}

// newPassword returns a password that begins with a letter, so that no configuration parses it as a number.
func newPassword() (string, error) {
	raw := make([]byte, 24)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	return "k" + hex.EncodeToString(raw), nil
}

func newKeyring() (string, error) { return "k1:" + seal.NewKey(), nil }

// write replaces a file atomically.
func write(dir, name, content string, mode fs.FileMode) error {
	if mode == 0 {
		mode = fileMode
	}
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return nil
	}
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
