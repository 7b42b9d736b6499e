package pglocal

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// process says what the number in a postmaster.pid stands for.
type process int

const (
	// processGone: no such process, or one that has ended and waits to be reaped.
	processGone process = iota
	// processOther is alive and is not a server of this folder.
	processOther
	// processOurServer is a server of this folder that Start has started.
	processOurServer
	// processForeignServer is a server of this folder that somebody else has started.
	processForeignServer
)

func inspect(pid int, dir string) process {
	if err := syscall.Kill(pid, 0); err == syscall.ESRCH {
		return processGone
	}
	args, state := commandLine(pid)
	if state == 'Z' || state == 'X' {
		return processGone
	}
	if len(args) == 0 || !strings.HasPrefix(filepath.Base(args[0]), "postgres") && filepath.Base(args[0]) != "postmaster" {
		return processOther
	}
	if slices.Contains(args, clusterName) && slices.Contains(args, dir) {
		return processOurServer
	}
	if servesFolder(pid, args, dir) {
		return processForeignServer
	}
	return processOther
}

// commandLine returns a process's arguments and its state letter, from /proc where there is one, else from ps.
func commandLine(pid int) (args []string, state byte) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if stat, err := os.ReadFile(filepath.Join(proc, "stat")); err == nil {
		// "pid (name) S ...": the name may contain anything, so look behind its last parenthesis.
		if i := strings.LastIndexByte(string(stat), ')'); i >= 0 && i+2 < len(stat) {
			state = stat[i+2]
		}
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil {
			return nil, state
		}
		return strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"), state
	}
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "stat=", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) == 0 {
		return nil, 'X'
	}
	return fields[1:], fields[0][0]
}

// servesFolder recognises a server by its working folder, which is its data folder, or by its -D argument.
func servesFolder(pid int, args []string, dir string) bool {
	if cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd")); err == nil {
		return cwd == dir
	}
	return slices.Contains(args, dir) || slices.Contains(args, "-D"+dir)
}

// major is the major version of the binaries in a folder, as PG_VERSION spells it; empty when they do not run.
func major(binDir string) string {
	out, err := exec.CommandContext(context.Background(), filepath.Join(binDir, "postgres"), "--version").Output()
	if err != nil {
		return ""
	}
	// "postgres (PostgreSQL) 15.18 (Debian ...)"
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return ""
	}
	v, _, _ := strings.Cut(fields[2], ".")
	return strings.TrimRight(v, "abcdefghijklmnopqrstuvwxyz") // "19devel"
}
