package service

import "runtime/debug"

// version is set by the linker where an image is built: -X github.com/kyma-project/keb/libs/service.version=v1.2.3.
var version string

// Version is the version that was stamped on the binary, else that of its main module, "devel" when it was built from a work tree.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
