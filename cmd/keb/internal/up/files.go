package up

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
)

// openLog opens the log in the data folder, readable by its owner only.
func openLog(dataDir string) (*rotatingLog, error) {
	l := &rotatingLog{path: filepath.Join(dataDir, "keb.log"), limit: maxLog}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return l, nil
}

// newLog logs JSON to the file and, if verbose, text to the screen, unless the configuration sets a format.
func newLog(file, screen io.Writer, verbose bool, cfg service.LogConfig) (*slog.Logger, error) {
	log, err := service.Logger(file, cfg.Format, cfg.Level)
	if err != nil || !verbose {
		return log, err
	}
	shown, err := service.Logger(screen, cmp.Or(cfg.Format, "text"), cfg.Level)
	if err != nil {
		return nil, err
	}
	return slog.New(slog.NewMultiHandler(log.Handler(), shown.Handler())), nil
}

// keysFile is the path of the keyring in the data folder.
const keysFile = "keys"

// sealKeys returns the keyring of this data folder. The first start creates it. It is written to the disk before it is used,
// because without it the sealed credentials in the database are lost.
func sealKeys(dataDir string) (string, error) {
	path := filepath.Join(dataDir, keysFile)
	content, err := os.ReadFile(path)
	if err == nil {
		keys := strings.TrimSpace(string(content))
		if _, err := seal.ParseKeyring(keys); err != nil {
			return "", fmt.Errorf("the seal keys in %s are damaged: restore the file from a backup: %w", path, err)
		}
		return keys, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the seal keys: %w", err)
	}
	keys := "k1:" + seal.NewKey()
	if err := writeSecret(path, keys+"\n"); err != nil {
		return "", fmt.Errorf("write the seal keys: %w", err)
	}
	return keys, nil
}

// writeSecret writes a file atomically, readable by its owner only.
func writeSecret(path, content string) (err error) {
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(content); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Sync(); err != nil {
		return errors.Join(err, file.Close())
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Sync()
}
