// Package pgfetch downloads PostgreSQL server binaries with the embedded-postgres library, for machines that have none.
package pgfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// DefaultRepository is the Maven repository that the binaries come from.
const DefaultRepository = "https://repo1.maven.org/maven2"

const startTimeout = 30 * time.Second

// Config says where the binaries come from and go to.
type Config struct {
	// Dir is where they are kept; what is there already is not downloaded again. Required.
	Dir string
	// Repository is a Maven repository; empty means DefaultRepository.
	Repository string
}

// DefaultDir is a folder to keep the binaries in that survives the project's own folders: below the user's cache, or, for
// root, where the other user that the server has to run as can reach them too.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/keb-postgres", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("download postgres: %w", err)
	}
	return filepath.Join(cache, "keb-postgres"), nil
}

// Binaries returns the folder with the programs postgres and initdb, and downloads them when they are not there. The error
// is one line and says what else can be done.
func Binaries(ctx context.Context, cfg Config) (string, error) {
	if cfg.Dir == "" {
		return "", errors.New("download postgres: the folder is not set")
	}
	bin := filepath.Join(cfg.Dir, "server", "bin")
	if complete(bin) {
		return bin, nil
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return "", fmt.Errorf("download postgres: %w", err)
	}
	if err := fetch(ctx, cfg); err != nil {
		return "", err
	}
	if !complete(bin) {
		return "", errors.New("download postgres: the archive does not hold the programs postgres and initdb")
	}
	return bin, nil
}

// fetch lets the library download and unpack. It can only do that on the way to a running server, which it refuses to
// start as root; a server is not what we want from it, so what counts is whether the programs are there.
func fetch(ctx context.Context, cfg Config) error {
	work, err := os.MkdirTemp(cfg.Dir, "fetch-")
	if err != nil {
		return fmt.Errorf("download postgres: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // only scratch
	port, err := freePort()
	if err != nil {
		return fmt.Errorf("download postgres: %w", err)
	}
	repository := cfg.Repository
	if repository == "" {
		repository = DefaultRepository
	}
	server := embedded.NewDatabase(embedded.DefaultConfig().
		Version(embedded.V17).BinaryRepositoryURL(repository).Port(port).
		CachePath(filepath.Join(work, "cache")).RuntimePath(filepath.Join(work, "server")).DataPath(filepath.Join(work, "data")).
		StartTimeout(startTimeout).Logger(io.Discard))
	done := make(chan error, 1)
	go func() {
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		// The library takes no context and may wait for a network that never answers. It is left to itself in its scratch
		// folder; nothing reads that.
		return fmt.Errorf("download postgres from %s: %w", repository, context.Cause(ctx))
	}
	if !complete(filepath.Join(work, "server", "bin")) {
		return fmt.Errorf("download postgres from %s: %w; install PostgreSQL or give the address of a server instead", repository, oneLine(err))
	}
	target := filepath.Join(cfg.Dir, "server")
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("download postgres: %w", err)
	}
	if err := os.Rename(filepath.Join(work, "server"), target); err != nil {
		return fmt.Errorf("download postgres: %w", err)
	}
	return nil
}

// oneLine keeps the first line: the library adds the output of the programs it has run.
func oneLine(err error) error {
	if err == nil {
		return errors.New("nothing was unpacked")
	}
	first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return errors.New(first)
}

func complete(bin string) bool {
	for _, program := range []string{"postgres", "initdb"} {
		info, err := os.Stat(filepath.Join(bin, program))
		if err != nil || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

func freePort() (uint32, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	return uint32(port), ln.Close()
}
