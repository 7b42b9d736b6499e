package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// The drill of docs/production.md: the database is restored from a backup with operations in flight. They find their later work in the
// external systems, and do not repeat it.
func TestRestore_Backup_ContinuesWithoutDuplicates(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{Overlays: []string{"testdata/short-executions"}, Env: lookUps})
	for _, system := range []string{"avs", "edp", "provisioner", "director", "reconciler", "control-plane", "gardener", "runtimes"} {
		sys.Fault(system, `{"latencyMs": 40}`)
	}
	// No operation ends before the backup.
	sys.Fault("reconciler", hanging)
	before := sys.Created()
	orders := make([]*harness.Order, 12)
	ids := make([]string, len(orders))
	for i := range orders {
		orders[i] = harness.Azure()
		ids[i] = sys.Provision(orders[i])
	}
	made := 0
	testkit.Eventually(t, limit, "a third of the work", func() bool {
		made = 0
		for _, op := range sys.Operations() {
			made += int(op.Cursor)
		}
		return made >= len(orders)*transitions/3
	})
	database := filepath.Join(sys.DataDir, "postgres")
	down := func() {
		t.Helper()
		sys.Kill()
		// The server ends a moment after the process that it belongs to.
		testkit.Eventually(t, limit, "the end of Postgres", func() bool {
			_, err := os.Stat(filepath.Join(database, "postmaster.pid"))
			return os.IsNotExist(err)
		})
	}
	down()
	backup := filepath.Join(t.TempDir(), "backup")
	copyFolder(t, database, backup)

	sys.Start()
	sys.Fault("reconciler", `{"latencyMs": 40}`)
	for i, o := range orders {
		sys.PollEnd(o, ids[i], osb.StateSucceeded, limit)
	}
	down()

	for _, dir := range []string{database, filepath.Join(sys.DataDir, "nats")} {
		require.NoError(t, os.RemoveAll(dir))
	}
	copyFolder(t, backup, database)
	sys.Start()
	restored := 0
	for _, op := range sys.Operations() {
		restored += int(op.Cursor)
	}
	if restored >= len(orders)*transitions {
		t.Fatalf("%d transitions are in the restored database: it is not the backup", restored)
	}
	for i, o := range orders {
		sys.PollEnd(o, ids[i], osb.StateSucceeded, limit)
	}
	t.Logf("the backup had %d of %d transitions", made, len(orders)*transitions)
	checkOnce(t, sys, orders, ids, before)
}

// copyFolder copies an unused folder with owners and modes, but without sockets.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			err = os.MkdirAll(target, 0o700)
		case entry.Type().IsRegular():
			var content []byte
			if content, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(target, content, 0o600)
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
		return sameOwner(path, target)
	})
	require.NoError(t, err)
}
