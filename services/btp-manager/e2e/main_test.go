package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	kymaSystem = "kyma-system"
	// waitTimeout is the timeout for short operations on a busy machine.
	waitTimeout = 90 * time.Second
	// Each replica has its own user, which identifies it in the audit log.
	firstReplica, secondReplica = "first-replica", "second-replica"
)

var (
	shared = kubetest.Shared{Options: []kubetest.Option{kubetest.Audit(firstReplica, secondReplica), toWebhooks.option}}
	// toWebhooks is the network of the shared cluster.
	toWebhooks network
	program    binary
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code := shared.Main(m)
	if err := errors.Join(toWebhooks.close(), program.remove()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// binary is the program, which the first test builds.
type binary struct {
	once sync.Once
	dir  string
	err  error
}

// path returns the path of the program.
func (b *binary) path(t *testing.T) string {
	t.Helper()
	b.once.Do(func() { b.err = b.build() })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, "cmd")
}

// build builds the program, with the race detector if the tests use it.
func (b *binary) build() error {
	var err error
	if b.dir, err = os.MkdirTemp("", "e2e-btp-manager-"); err != nil {
		return err
	}
	args := []string{"build", "-ldflags=-w", "-o", b.dir, "./cmd"} // without debug information
	if testkit.RaceDetector() {
		args = slices.Insert(args, 1, "-race")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

func (b *binary) remove() error {
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}
