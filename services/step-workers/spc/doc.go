// Package spc is the worker of SPC, which tells customers of maintenance: it announces that the upgrade of an instance
// begins and that it has ended, and that an orchestration is scheduled or was cancelled (docs/contracts/spc.md).
package spc
