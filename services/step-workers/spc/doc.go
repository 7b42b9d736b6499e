// Package spc is the worker of SPC, which notifies customers of maintenance. It announces the begin and the end of the upgrade of an
// instance, and that an orchestration is scheduled or cancelled (docs/contracts/spc.md).
package spc
