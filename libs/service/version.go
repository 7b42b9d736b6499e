package service

import "runtime/debug"

// version is set by the linker in image builds: -X github.com/kyma-project/keb/libs/service.version=1.2.3.
var version string

// Version returns the version from the linker, or else of the main module; "devel" for a build from a work tree.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
