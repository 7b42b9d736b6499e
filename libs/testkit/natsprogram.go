package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// natsProgram builds the server of tools/nats, once per version, into the build cache, and returns its path. The server is a program of its
// own, so that its module is not among those that a worker's go.sum lists.
var natsProgram = sync.OnceValues(func() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "tool", "-n", "nats-server")
	cmd.Dir = filepath.Join(root, "tools", "nats")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	var failure bytes.Buffer
	cmd.Stderr = &failure
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the server of tools/nats: %w: %s", err, failure.Bytes())
	}
	return strings.TrimSpace(string(path)), nil
})

// repository returns the folder of go.work, at or above the working directory.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("no go.work at or above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}
