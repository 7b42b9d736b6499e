package pglocal

import "syscall"

// Capabilities that let a process pass through folders that are closed to it, the narrower one first (capabilities(7)).
var passCapabilities = []uintptr{capDACReadSearch, capDACOverride}

const (
	capDACOverride   = 1
	capDACReadSearch = 2
)

// attributes make the kernel stop the child when we die: a fast shutdown, so that the data folder is free soon.
func (id identity) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		// Away from the terminal's process group: Ctrl-C is ours to answer, in order.
		Setpgid:   true,
		Pdeathsig: syscall.SIGINT,
	}
	if id.other {
		attr.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid}
		attr.AmbientCaps = id.caps
	}
	return attr
}
