package pglocal

import "syscall"

// passCapabilities allow a process to pass through closed folders, the narrower one first (capabilities(7)).
var passCapabilities = []uintptr{capDACReadSearch, capDACOverride}

const (
	capDACOverride   = 1
	capDACReadSearch = 2
)

// attributes make the kernel stop the child when the parent ends, with a fast shutdown that frees the data folder soon.
func (id identity) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		// The child is not in the terminal's process group, so that only the parent receives Ctrl-C.
		Setpgid:   true,
		Pdeathsig: syscall.SIGINT,
	}
	if id.other {
		attr.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid}
		attr.AmbientCaps = id.caps
	}
	return attr
}
