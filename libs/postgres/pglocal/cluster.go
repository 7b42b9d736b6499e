package pglocal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// binariesFor returns binaries of the version that created the data folder.
func binariesFor(dir, binDir string) (string, error) {
	var candidates []string
	if binDir != "" {
		real, ok := serverBinaries(binDir)
		if !ok {
			return "", fmt.Errorf("start postgres: %s does not hold the programs postgres and initdb", binDir)
		}
		candidates = []string{real}
	} else {
		var err error
		if candidates, err = Find(); err != nil {
			return "", err
		}
	}
	want, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return candidates[0], nil
	}
	if err != nil {
		return "", fmt.Errorf("start postgres: %w", err)
	}
	for _, bin := range candidates {
		if major(bin) == strings.TrimSpace(string(want)) {
			return bin, nil
		}
	}
	return "", fmt.Errorf("start postgres: the data folder %s was made by PostgreSQL %s, and only PostgreSQL %s is here: install version %s or remove the folder",
		dir, strings.TrimSpace(string(want)), major(candidates[0]), strings.TrimSpace(string(want)))
}

// makeCluster runs initdb. It works in a folder beside the data folder and then renames it, so that a crash never leaves an incomplete
// cluster.
func (s *Server) makeCluster(ctx context.Context, durable bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start postgres: %w", err)
	}
	if len(entries) > 0 {
		password, err := os.ReadFile(filepath.Join(s.dir, passwordFile))
		if err != nil {
			return fmt.Errorf("start postgres: the folder %s is not empty and not a data folder made here: choose another one", s.dir)
		}
		s.password = string(password)
		return nil
	}
	s.password = rand.Text()
	work := s.dir + ".init"
	if err := s.initdb(ctx, work, durable); err != nil {
		return fmt.Errorf("start postgres: make data folder: %w", err)
	}
	// An empty folder may be a mount point or created by the caller, so replacing it may fail.
	if err := os.Remove(s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start postgres: make data folder: %w", err)
	}
	if err := os.Rename(work, s.dir); err != nil {
		return fmt.Errorf("start postgres: make data folder: %w", err)
	}
	if !durable {
		return nil
	}
	// initdb has flushed the cluster. Without its password or its name it would be unusable after a power cut.
	for _, path := range []string{filepath.Join(s.dir, passwordFile), s.dir, filepath.Dir(s.dir)} {
		if err := flush(path); err != nil {
			return fmt.Errorf("start postgres: make data folder: %w", err)
		}
	}
	return nil
}

// flush writes a file, or the entries of a folder, to the disk.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (s *Server) initdb(ctx context.Context, work string, durable bool) error {
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	if err := s.id.give(work); err != nil {
		return err
	}
	// The password is in a file that only the server's user can read, outside of the folder that initdb needs empty.
	file := work + ".password"
	if err := os.WriteFile(file, []byte(s.password), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	if err := s.id.give(file); err != nil {
		return err
	}
	args := []string{"-D", work, "-U", superuser, "--pwfile=" + file, "--auth-local=trust", "--encoding=UTF8", "--locale=C"}
	if durable {
		args = append(args, "--auth-host=scram-sha-256")
	} else {
		// Under the race detector, SCRAM takes most of the time of a connection. The password is random and only used on loopback.
		args = append(args, "--auth-host=password", "--no-sync")
	}
	cmd := s.id.command(ctx, s.program("initdb"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(out.String()))
	}
	return os.Rename(file, filepath.Join(work, passwordFile))
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
