package service

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow to five times the live memory before the next collection. The live memory of a service is some
// tens of megabytes, so the additional memory is small. With Go's default of 100 the collector takes a tenth of the time
// of a step.
const gcPercent = 400

// TuneGC sets the target percentage of the garbage collector, unless GOGC is set. It is for main functions.
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
