package bus_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// A power loss can leave any file of the server's store half written. The bus must work again for each file, and only messages whose
// own file was damaged may be lost.
func TestEnsureAll_DamagedStoreFile_CreatesAllAgain(t *testing.T) {
	t.Parallel()
	commands := spec()
	commands.AckWait = time.Second
	consumers := []event.ConsumerSpec{event.RequestsConsumer(), event.ResultsConsumer(), event.FactsConsumer(event.UserBroker), commands}
	b, s := setup(t)
	require.NoError(t, b.EnsureAll(t.Context(), consumers))
	publish(t, b, "one", "two")
	taken, err := b.JetStream().Consumer(t.Context(), string(event.StreamCommands), commands.Name)
	require.NoError(t, err)
	if _, err := taken.Next(); err != nil { // gives the consumer a state to store
		t.Fatal(err)
	}
	b.Close()
	s.Shutdown()
	whole := t.TempDir()
	require.NoError(t, os.CopyFS(whole, os.DirFS(s.StoreDir())))
	const (
		removed    = -1
		streamMeta = "/$G/streams/KEB_COMMANDS/meta.inf"
	)
	for _, file := range filesOf(t, whole) {
		for _, part := range []int64{removed, 0, 2} { // removed, empty, or half of the file
			t.Run(fmt.Sprint(file, " ", part), func(t *testing.T) {
				t.Parallel()
				s := testkit.NATS(t)
				s.Shutdown()
				require.NoError(t, os.RemoveAll(s.StoreDir()))
				require.NoError(t, os.CopyFS(s.StoreDir(), os.DirFS(whole)))
				tear(t, filepath.Join(s.StoreDir(), file), part)
				s.Restart(t)
				b := connect(t, s, bus.Config{}, bus.Deps{})
				require.NoError(t, b.EnsureAll(t.Context(), consumers))
				require.NoError(t, b.EnsureAll(t.Context(), consumers), "the second time")
				got := consume(t, b, bus.ConsumeConfig{Consumer: commands})
				publish(t, b, "three")
				seen := map[string]bool{}
				torn := strings.HasSuffix(file, ".blk") || file == streamMeta && part == removed
				for !seen["three"] || !torn && (!seen["one"] || !seen["two"]) {
					seen[within(t, got, "the messages come")] = true
				}
			})
		}
	}
}

// filesOf lists the files below the folders of the streams.
func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, "/KEB_COMMANDS/") {
			files = append(files, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil || len(files) < 6 {
		t.Fatalf("files %v, error %v", files, err)
	}
	return files
}

// tear truncates a file to the first part: half of it for 2, empty for 0; a negative part removes the file.
func tear(t *testing.T, path string, part int64) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	switch {
	case part < 0:
		err = os.Remove(path)
	case part == 0:
		err = os.Truncate(path, 0)
	default:
		err = os.Truncate(path, info.Size()/part)
	}
	require.NoError(t, err)
}
