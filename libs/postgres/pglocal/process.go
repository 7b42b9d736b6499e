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

// process classifies the process id in a postmaster.pid.
type process int

const (
	// processGone: no such process, or one that has ended and waits to be reaped.
	processGone process = iota
	// processOther is a running process that is not a server of this folder.
	processOther
	// processOurServer is a server of this folder that Start started.
	processOurServer
	// processForeignServer is a server of this folder that another program started.
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

// commandLine returns a process's arguments and its state letter, from /proc if it exists, otherwise from ps.
func commandLine(pid int) (args []string, state byte) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if stat, err := os.ReadFile(filepath.Join(proc, "stat")); err == nil {
		// The format is "pid (name) S ...". The name can contain anything, so search after the last parenthesis.
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

// servesFolder recognizes a server by its working folder, which is its data folder, or by its -D argument.
func servesFolder(pid int, args []string, dir string) bool {
	if cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd")); err == nil {
		return cwd == dir
	}
	return slices.Contains(args, dir) || slices.Contains(args, "-D"+dir)
}

// major returns the major version of the binaries in a folder in the format of PG_VERSION; empty if they do not run.
func major(binDir string) string {
	out, err := exec.CommandContext(context.Background(), filepath.Join(binDir, "postgres"), "--version").Output()
	if err != nil {
		return ""
	}
	// The output is "postgres (PostgreSQL) 15.18 (Debian ...)".
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return ""
	}
	v, _, _ := strings.Cut(fields[2], ".")
	return strings.TrimRight(v, "abcdefghijklmnopqrstuvwxyz") // "19devel"
}
