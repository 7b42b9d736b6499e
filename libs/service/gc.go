package service

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow to five times what is alive before the next collection. What lives in a service is some
// tens of megabytes, so that is memory nobody misses; with Go's default of 100 the collector takes a tenth of the time
// that a step costs.
const gcPercent = 400

// TuneGC sets how eagerly memory is collected, unless the environment variable GOGC says it. It is for main functions.
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
