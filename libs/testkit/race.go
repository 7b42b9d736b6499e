package testkit

import (
	"runtime/debug"
	"slices"
)

// RaceDetector reports whether this binary was built with the race detector.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
