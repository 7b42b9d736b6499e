//go:build !unix

package landscape

import (
	"errors"
	"io"
)

// ErrInUse means that another process uses the data folder.
var ErrInUse = errors.New("data folder is in use by another landscape; stop that one, or set another data folder")

// lock does nothing on systems without advisory locks.
func lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }
