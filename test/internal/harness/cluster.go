package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres/pglocal"
)

// clusterLimit is how long a database cluster may take to be made.
const clusterLimit = 2 * time.Minute

// cluster is the folder of a database cluster that was never used, of which each system gets a copy: to make one takes longer than
// the rest of a start. It is empty where there is no Postgres: keb up gets one.
var cluster = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), clusterLimit)
	defer cancel()
	dir, err := programs()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "cluster")
	server, err := pglocal.Start(ctx, pglocal.Config{DataDir: dir})
	if errors.Is(err, pglocal.ErrNoBinaries) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return dir, server.Stop(ctx)
})

// prepare gives the system its database cluster before the first start.
func (s *System) prepare() {
	s.t.Helper()
	to := filepath.Join(s.DataDir, "postgres")
	_, err := os.Stat(to)
	if err == nil || s.opts.FromNothing || slices.ContainsFunc(s.Env(), func(v string) bool { return strings.HasPrefix(v, "KEB_DATABASE_URL=") }) {
		return
	}
	from, err := cluster()
	require.NoError(s.t, err, "make a database cluster")
	if from == "" {
		return
	}
	require.NoError(s.t, os.MkdirAll(s.DataDir, 0o711))
	// With owners and modes.
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		s.t.Fatal(fmt.Errorf("copy the database cluster: %w: %s", err, out))
	}
}
