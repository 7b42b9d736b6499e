package overlay

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"

	"github.com/kyma-project/keb/libs/process"
)

// snapshot is the content of the overlay folders at one time.
type snapshot struct {
	files []process.File
	// err is set if a folder cannot be read.
	err error
	// digest differs if the names or the contents of the files differ.
	digest string
}

// readFolders reads the overlay files of folders, in the order in which they apply.
func readFolders(folders []fs.FS) snapshot {
	s, hash := snapshot{}, sha256.New()
	for _, folder := range folders {
		files, err := process.ReadFiles(folder)
		if err != nil {
			sum := sha256.Sum256([]byte(err.Error()))
			return snapshot{err: err, digest: hex.EncodeToString(sum[:])}
		}
		s.files = append(s.files, files...)
	}
	for _, f := range s.files {
		sum := sha256.Sum256(f.Content)
		_, _ = hash.Write([]byte(f.Name + "\x00")) // never fails
		_, _ = hash.Write(sum[:])
	}
	s.digest = hex.EncodeToString(hash.Sum(nil))
	return s
}
