package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pglocal"
)

// MakeStandby copies the running server in primaryDir into dir, a new folder. A server that is started there follows the first one as its
// standby.
func MakeStandby(ctx context.Context, primary *pglocal.Server, primaryDir, dir string) error {
	owner, err := giveFiles(primaryDir)
	if err != nil {
		return fmt.Errorf("make standby: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make standby: %w", err)
	}
	if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
		return fmt.Errorf("make standby: %w", err)
	}
	return runAsOwner(ctx, dir, "pg_basebackup", "-D", dir, "-d", primary.URL("postgres"), "-X", "stream", "-c", "fast", "-R")
}

// Promote makes the standby in dir a primary. It returns before the standby accepts writes.
func Promote(ctx context.Context, dir string) error {
	return runAsOwner(ctx, dir, "pg_ctl", "promote", "-D", dir, "-W")
}

// Rewind makes the stopped former primary in dir a standby of the new primary, which runs in primaryDir. It removes what the new primary
// lacks.
func Rewind(ctx context.Context, dir string, primary *pglocal.Server, primaryDir string) error {
	for _, folder := range []string{dir, primaryDir} {
		if _, err := giveFiles(folder); err != nil {
			return fmt.Errorf("rewind: %w", err)
		}
	}
	// Until its first checkpoint, the control file of a promoted server names the old timeline, and pg_rewind does nothing.
	db, err := postgres.Open(ctx, postgres.Config{URL: primary.URL("postgres"), MaxOpen: 1})
	if err != nil {
		return fmt.Errorf("rewind: %w", err)
	}
	if _, err := db.ExecContext(ctx, `CHECKPOINT`); err != nil {
		return errors.Join(fmt.Errorf("rewind: %w", err), db.Close())
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("rewind: %w", err)
	}
	return runAsOwner(ctx, dir, "pg_rewind", "-D", dir, "--source-server", primary.URL("postgres"), "-R")
}

// giveFiles gives the files that pglocal has written as root, such as the log, to the owner of the folder, who copies them. It returns
// that owner.
func giveFiles(dir string) (*syscall.Stat_t, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%s has no owner: %w", dir, fs.ErrInvalid)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if file.Type().IsRegular() {
			if err := os.Chown(filepath.Join(dir, file.Name()), int(owner.Uid), int(owner.Gid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return owner, nil
}

// runAsOwner runs a program of the server as the owner of its folder, because it refuses root.
func runAsOwner(ctx context.Context, dir, program string, args ...string) error {
	found, err := pglocal.Find()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	owner, err := giveFiles(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(found[0], program), args...)
	cmd.Dir, cmd.Env = filepath.Dir(dir), append(os.Environ(), "LC_ALL=C")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}
