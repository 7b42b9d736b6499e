package pglocal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// identity is whom the server runs as. The zero value is the user we are.
type identity struct {
	other    bool
	uid, gid uint32
	name     string
	// caps are capabilities the server keeps; see enter.
	caps []uintptr
}

// serverIdentity chooses the user of the server: PostgreSQL refuses root. An existing data folder stays with its owner.
func serverIdentity(dataDir string) (identity, error) {
	if os.Geteuid() != 0 {
		return identity{}, nil
	}
	if info, err := os.Stat(filepath.Join(dataDir, "PG_VERSION")); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return identity{other: true, uid: st.Uid, gid: st.Gid, name: "uid " + strconv.Itoa(int(st.Uid))}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil && uid != 0 {
			return identity{other: true, uid: uint32(uid), gid: uint32(gid), name: name}, nil
		}
	}
	return identity{}, errors.New("postgres does not run as root, and there is no user postgres or nobody to run it as: add one, or run as another user")
}

// give hands a file or folder over to the server's user.
func (id identity) give(path string) error {
	if !id.other {
		return nil
	}
	return os.Chown(path, int(id.uid), int(id.gid))
}

// command runs a PostgreSQL program as the server's user, without the PG* settings of our own environment.
func (id identity) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/" // the one folder that every user can enter
	cmd.Env = environment()
	cmd.SysProcAttr = id.attributes()
	return cmd
}

// enter finds out whether the server's user can run the program and reach the folder, and which one of the capabilities
// it needs for that. Where root keeps its folders to itself (a clone in root's home) the server gets the capability to pass
// through them, if we have it to give; the password then keeps other users of the machine from reading files by the server.
func (id identity) enter(ctx context.Context, program, dir string, capabilities []uintptr) (identity, error) {
	// A shell's cd, not the child's working folder: that is set before the capabilities take effect.
	tryDir := func(id identity, dir string) error {
		return id.command(ctx, "/bin/sh", "-c", `cd -- "$0"`, dir).Run()
	}
	if err := id.command(ctx, program, "--version").Run(); err != nil {
		return id, fmt.Errorf("user %s cannot run %s: %w", id.who(), program, err)
	}
	err := tryDir(id, dir)
	if err == nil {
		return id, nil
	}
	for _, capability := range capabilities {
		if !id.other {
			break
		}
		with := id
		with.caps = []uintptr{capability}
		if tryDir(with, dir) == nil {
			return with, nil
		}
	}
	blocking := dir
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if tryDir(id, d) != nil {
			blocking = d
		}
	}
	return id, fmt.Errorf("user %s, whom postgres runs as, cannot enter %s: allow it (chmod o+x %s) or choose a data folder elsewhere",
		id.who(), blocking, blocking)
}

func (id identity) who() string {
	if id.other {
		return id.name
	}
	return strconv.Itoa(os.Geteuid())
}
