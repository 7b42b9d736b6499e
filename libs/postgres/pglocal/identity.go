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

// identity is the user of the server process. The zero value is the current user.
type identity struct {
	other    bool
	uid, gid uint32
	name     string
	// caps are the capabilities of the server, see enter.
	caps []uintptr
}

// serverIdentity returns the user of the server, because PostgreSQL does not run as root. An existing data folder keeps its owner.
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

// give changes the owner of a file or folder to the server's user.
func (id identity) give(path string) error {
	if !id.other {
		return nil
	}
	return os.Chown(path, int(id.uid), int(id.gid))
}

// command runs a PostgreSQL program as the server's user, without the PG* variables of the environment.
func (id identity) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/" // every user can enter this folder
	cmd.Env = environment()
	cmd.SysProcAttr = id.attributes()
	return cmd
}

// enter checks whether the server's user can run the program and enter the folder, and determines the capabilities that it needs for that.
// If a path is closed to that user (for example a clone in root's home), the server gets a capability to pass through it, if the
// current process has one. The server's password then prevents other users of the machine from reading files through the server.
func (id identity) enter(ctx context.Context, program, dir string, capabilities []uintptr) (identity, error) {
	// It uses a shell's cd, because the child's working folder is set before the capabilities take effect.
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
	return id, fmt.Errorf("user %s, as which postgres runs, cannot enter %s: allow it (chmod o+x %s) or choose a data folder elsewhere",
		id.who(), blocking, blocking)
}

func (id identity) who() string {
	if id.other {
		return id.name
	}
	return strconv.Itoa(os.Geteuid())
}
