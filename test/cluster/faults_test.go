//go:build linux

package cluster

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/test/internal/installation"
	"github.com/kyma-project/keb/test/internal/lossyfs"
)

const (
	// silence exceeds the acknowledgement timeout of the bus (10 s), the time after which a worker counts as missing (6 s), and the time after
	// which a server takes over from a leader that is silent (9 s).
	silence = 14 * time.Second
	// outage is the duration of an outage.
	outage = 8 * time.Second
	// slowWrite is the duration of each write to a slow disk.
	slowWrite = 100 * time.Millisecond
	// startTime is long enough for a server to read its store, or to end.
	startTime = 4 * time.Second
	// flips is the number of bits that are flipped in a file.
	flips = 4
)

// fault is a fault and its repair.
type fault struct {
	name string
	do   func(w *world, v *victims)
}

// victims are the servers in random order.
type victims struct {
	a, b, c string
	rnd     *rand.Rand
}

func faults() []fault {
	return []fault{
		{"none", func(w *world, _ *victims) { w.Pass(outage) }},
		{"the leader killed", func(w *world, _ *victims) { w.Killed(outage, w.leader()) }},
		{"each server killed, one after the other", func(w *world, v *victims) {
			for _, name := range []string{v.a, v.b, v.c} {
				w.Killed(2*time.Second, name)
				w.awaitWhole()
			}
		}},
		{"two servers killed", func(w *world, v *victims) { w.Killed(outage, v.a, v.b) }},
		{"all servers killed", func(w *world, _ *victims) { w.Killed(0, installation.ToNATS) }},
		{"the leader frozen", func(w *world, _ *victims) { w.frozen(w.leader()) }},
		{"two servers frozen", func(w *world, v *victims) { w.frozen(v.a, v.b) }},
		{"the leader cut off from the other servers", func(w *world, _ *victims) {
			leader := w.leader()
			w.partition(func(from, to string) bool { return from == leader || to == leader })
		}},
		{"all servers cut off from each other", func(w *world, _ *victims) { w.partition(func(string, string) bool { return true }) }},
		{"what the leader sends to the others is lost", func(w *world, _ *victims) {
			leader := w.leader()
			w.partition(func(from, _ string) bool { return from == leader })
		}},
		{"what the others send to the leader is lost", func(w *world, _ *victims) {
			leader := w.leader()
			w.partition(func(_, to string) bool { return to == leader })
		}},
		{"two servers do not hear each other", func(w *world, v *victims) {
			w.partition(func(from, to string) bool { return from != v.c && to != v.c })
		}},
		{"a server removed, and an empty one added", replace},
		{"store of a server deleted", func(w *world, v *victims) { w.loseStores(v.a) }},
		{"stores of two servers deleted", func(w *world, v *victims) { w.loseStores(v.a, v.b) }},
		{"bits flipped in the messages of a server", func(w *world, v *victims) { w.damage(v, "streams/*/msgs/*.blk") }},
		{"bits flipped in the snapshots of a server", func(w *world, v *victims) { w.damage(v, "_js_/*/snapshots/*") }},
		{"consumers of commands deleted", deleteConsumers},
		{"the leader's disk slow", func(w *world, _ *victims) {
			disk := w.disks[w.leader()]
			disk.Slow(slowWrite)
			w.Pass(silence)
			disk.Slow(0)
		}},
		{"power of all servers cut", func(w *world, _ *victims) { w.cutPower(w.Servers...) }},
		{"power of all servers cut, after all was written", func(w *world, v *victims) {
			w.written(time.Duration(v.rnd.Int64N(int64(3 * time.Second))))
			w.cutPower(w.Servers...)
		}},
		{"power of a server cut while others are paused", splitBrain},
	}
}

func (w *world) frozen(names ...string) {
	for _, name := range names {
		w.Programs[name].Freeze()
	}
	w.Pass(silence)
	for _, name := range names {
		w.Programs[name].Thaw()
	}
}

func (w *world) partition(drop func(from, to string) bool) {
	heal := w.Partition(drop)
	defer heal()
	w.Pass(2 * silence)
}

// replace removes a server for good, as an operator does, and starts an empty server with a new name instead (docs/production.md).
func replace(w *world, v *victims) {
	config := filepath.Join(w.Dir, v.a+".conf")
	raw, err := os.ReadFile(config)
	require.NoError(w.T, err)
	line := regexp.MustCompile(`(?m)^server_name: (.*)$`)
	w.Take(v.a)
	w.Await("the removal of the server", func() bool {
		answer, err := w.system.Request("$JS.API.SERVER.REMOVE", fmt.Appendf(nil, `{"peer": %q}`, line.FindSubmatch(raw)[1]), 2*time.Second)
		var removed struct {
			Success bool
			Error   any
		}
		if err == nil {
			err = json.Unmarshal(answer.Data, &removed)
		}
		w.T.Logf("removal of %s: %+v %v", v.a, removed, err)
		return err == nil && removed.Success
	})
	w.Pass(outage)
	w.renamed++
	require.NoError(w.T, os.WriteFile(config, line.ReplaceAll(raw, fmt.Appendf(nil, "server_name: %s-%d", v.a, w.renamed)), 0o600))
	w.wipe(v.a)
	w.Bring(v.a)
}

func (w *world) wipe(name string) {
	require.NoError(w.T, os.RemoveAll(filepath.Join(w.Dir, name, "jetstream")))
}

// loseStores kills servers and deletes their stores.
func (w *world) loseStores(names ...string) {
	w.Take(names...)
	for _, name := range names {
		w.wipe(name)
	}
	w.Pass(2 * time.Second)
	w.Bring(names...)
}

// damage stops a server, flips bits in files of its store, and starts it again. pattern is the end of the files' paths.
func (w *world) damage(v *victims, pattern string) {
	w.Down[v.a] = true
	w.Programs[v.a].Stop() // which writes snapshots
	flipped := 0
	store := filepath.Join(w.Dir, v.a, "jetstream")
	require.NoError(w.T, filepath.WalkDir(store, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, _ := filepath.Rel(store, path)
		_, inner, _ := strings.Cut(relative, "/") // without the account
		if matches, err := filepath.Match(pattern, inner); !matches {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil || len(content) == 0 {
			return err
		}
		for range flips {
			content[v.rnd.IntN(len(content))] ^= 1 << v.rnd.IntN(8)
		}
		flipped++
		return os.WriteFile(path, content, 0o600)
	}))
	if flipped == 0 {
		w.T.Errorf("%s has no file %s", v.a, pattern)
	}
	w.T.Logf("bits flipped in %d files of %s", flipped, v.a)
	w.Programs[v.a].Start()
	w.Pass(startTime)
	if !w.Programs[v.a].Running() {
		w.T.Logf("%s does not start with these files; it gets an empty store, as docs/production.md says", v.a)
		w.wipe(v.a)
		w.Programs[v.a].Start()
	}
	delete(w.Down, v.a)
}

func deleteConsumers(w *world, _ *victims) {
	s, err := w.JS.Stream(w.T.Context(), string(event.StreamCommands))
	require.NoError(w.T, err)
	for consumer := range s.ConsumerNames(w.T.Context()).Name() {
		if err := s.DeleteConsumer(w.T.Context(), consumer); err != nil {
			w.T.Errorf("delete consumer %s: %v", consumer, err)
		}
	}
}

// written makes everything durable, and lets a time pass.
func (w *world) written(d time.Duration) {
	for _, disk := range w.disks {
		disk.Sync()
	}
	w.Pass(d)
}

// cutPower cuts the power of servers at the same moment, and starts them again.
func (w *world) cutPower(names ...string) {
	var disks []*lossyfs.FS
	for _, name := range names {
		disks = append(disks, w.disks[name])
	}
	w.T.Logf("the disks lose %+v", lossyfs.Cut(lossyfs.Damage{}, nil, disks...))
	for _, name := range names {
		w.Down[name] = true
		w.Programs[name].Signal(syscall.SIGKILL)
	}
	for _, disk := range disks {
		disk.Release()
	}
	w.Take(names...)
	for _, disk := range disks {
		require.NoError(w.T, disk.Restore(w.T.Context()))
	}
	w.Bring(names...)
}

// splitBrain pauses a follower, so that leader and other follower acknowledge alone. Then the other follower loses its power, and with it what
// it had acknowledged; the leader is paused, and the two followers go on.
func splitBrain(w *world, _ *victims) {
	leader := w.leader()
	followers := slices.DeleteFunc(slices.Clone(w.Servers), func(name string) bool { return name == leader })
	w.written(0)
	w.Programs[followers[0]].Freeze()
	w.Pass(3 * time.Second)
	w.Programs[leader].Freeze()
	w.cutPower(followers[1])
	w.Programs[followers[0]].Thaw()
	w.Pass(silence)
	w.Programs[leader].Thaw()
}
