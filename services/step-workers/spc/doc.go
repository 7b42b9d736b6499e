// Package spc is the worker of SPC, which tells customers of maintenance: it announces that the upgrade of an instance
// begins and that it has ended (facts/keb.md 5.11).
package spc
