package pglocal

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

// DefaultRepository is the default Maven repository of the binaries.
const DefaultRepository = "https://repo1.maven.org/maven2"

const startTimeout = 30 * time.Second

// FetchConfig describes the source and the destination of the binaries.
type FetchConfig struct {
	// Dir is the destination folder. Existing binaries are not downloaded again. Required.
	Dir string
	// Repository is a Maven repository; empty means DefaultRepository.
	Repository string
}

// DefaultFetchDir returns a folder for the binaries outside the project: below the user's cache, or, for root, at a path that the user of the
// server can also reach.
func DefaultFetchDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/keb-postgres", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("download postgres: %w", err)
	}
	return filepath.Join(cache, "keb-postgres"), nil
}

// FetchBinaries returns the folder with the programs postgres and initdb, and downloads them if they are missing. The error is one line and
// describes the alternatives.
func FetchBinaries(ctx context.Context, cfg FetchConfig) (string, error) {
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

// fetch makes the library download and unpack the programs. The library can do that only when it starts a server, which it refuses to do
// as root. So fetch ignores the library's error if the programs exist.
func fetch(ctx context.Context, cfg FetchConfig) error {
	work, err := os.MkdirTemp(cfg.Dir, "fetch-")
	if err != nil {
		return fmt.Errorf("download postgres: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // only temporary files
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
		// The library takes no context and may wait for a network that never answers. fetch abandons it in its temporary folder, which
		// nothing reads.
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

// oneLine returns the first line of an error: the library appends the output of programs.
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
