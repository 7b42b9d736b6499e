//go:build unix && !linux

package pglocal

import "syscall"

var passCapabilities []uintptr

func (id identity) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if id.other {
		attr.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid}
	}
	return attr
}
