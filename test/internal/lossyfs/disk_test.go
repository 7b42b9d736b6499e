//go:build linux

package lossyfs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// newFile returns a disk with a durable empty file "f".
func newFile() (*disk, *node) {
	d := newDisk(true)
	n := d.make(syscall.S_IFREG|0o600, 0, 0)
	d.commit(change{{d.root, "f", n}})
	d.syncDir(d.root)
	return d, n
}

func (d *disk) content(name string) []byte {
	n := d.root.live.entries[name]
	if n == nil {
		return nil
	}
	raw := make([]byte, n.live.size)
	n.live.read(raw, 0)
	return raw
}

// TestDisk_RandomChanges_MatchTwoCopies compares a file with two slices: the current content, and that of the last sync.
func TestDisk_RandomChanges_MatchTwoCopies(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		d, n := newFile()
		var live, kept []byte
		var log []string
		for range 60 {
			switch what := rnd.IntN(10); {
			case what < 5:
				off, data := rnd.IntN(5*pageSize), make([]byte, 1+rnd.IntN(2*pageSize))
				for i := range data {
					data[i] = byte(rnd.IntN(256))
				}
				log = append(log, fmt.Sprintf("write %d+%d", off, len(data)))
				live = append(live, make([]byte, max(0, off+len(data)-len(live)))...)
				copy(live[off:], data)
				n.write(data, int64(off))
				d.touch(n)
			case what < 7:
				size := rnd.IntN(6 * pageSize)
				log = append(log, fmt.Sprintf("truncate %d", size))
				live = append(live, make([]byte, max(0, size-len(live)))...)[:size]
				n.truncate(int64(size))
				d.touch(n)
			case what < 9:
				log = append(log, "sync")
				kept = slices.Clone(live)
				d.syncFile(n)
			default:
				log = append(log, "cut")
				d, _ = d.cut(Damage{}, nil)
				n = d.root.live.entries["f"]
				live = slices.Clone(kept)
			}
			// Bytes behind the end must not return when the file grows.
			live = slices.Clip(live)
			if !bytes.Equal(d.content("f"), live) {
				t.Fatalf("seed %d: the content is wrong after %s", seed, strings.Join(log, ", "))
			}
		}
	}
}

func TestDisk_SurvivingPages_AreOldOrNew(t *testing.T) {
	t.Parallel()
	kept, lost := 0, 0
	for seed := range uint64(50) {
		d, n := newFile()
		n.write(bytes.Repeat([]byte{1}, 8*pageSize), 0)
		d.syncFile(n)
		n.write(bytes.Repeat([]byte{2}, 8*pageSize), 0)
		d.touch(n)
		after, loss := d.cut(Damage{Survive: 0.5}, rand.New(rand.NewPCG(seed, 0)))
		raw := after.content("f")
		for i := range 8 {
			p := raw[i*pageSize : (i+1)*pageSize]
			if !bytes.Equal(p, bytes.Repeat(p[:1], pageSize)) {
				t.Fatalf("seed %d: page %d is mixed", seed, i)
			}
			if p[0] == 2 {
				kept++
			} else {
				lost++
			}
		}
		if want := int64(bytes.Count(raw, []byte{1})); loss.Bytes != want {
			t.Errorf("seed %d: the loss is %d bytes, want %d", seed, loss.Bytes, want)
		}
	}
	if kept == 0 || lost == 0 {
		t.Errorf("%d pages survived and %d were lost, want some of each", kept, lost)
	}
}

func TestDisk_TornWrite_EndsAtABorder(t *testing.T) {
	t.Parallel()
	for _, unit := range []int64{512, pageSize} {
		torn, flipped, borders := 0, 0, map[int]bool{}
		for seed := range uint64(200) {
			d, n := newFile()
			n.write(bytes.Repeat([]byte{1}, 100), 0)
			d.syncFile(n)
			n.write(bytes.Repeat([]byte{2}, 3*pageSize), 100)
			d.touch(n)
			flip := func(path string) bool { return path == "/f" && seed%2 == 0 }
			after, loss := d.cut(Damage{Tear: unit, Flip: flip}, rand.New(rand.NewPCG(seed, 0)))
			raw := after.content("f")
			torn, flipped = torn+loss.Torn, flipped+loss.Flipped
			switch {
			case loss.Torn == 0 && len(raw) != 100:
				t.Fatalf("seed %d: %d bytes without a torn write, want 100", seed, len(raw))
			case loss.Torn == 0:
				continue
			case int64(len(raw))%unit != 0 || len(raw) > 100+3*pageSize:
				t.Fatalf("seed %d: %d bytes of a torn write, want a multiple of %d", seed, len(raw), unit)
			case !bytes.Equal(raw[:100], bytes.Repeat([]byte{1}, 100)):
				t.Fatalf("seed %d: synced bytes have changed", seed)
			}
			if wrong := len(raw) - 100 - bytes.Count(raw[100:], []byte{2}); (wrong > 0) != (loss.Flipped > 0) {
				// Several flips of one bit may cancel each other.
				if loss.Flipped == 0 {
					t.Errorf("seed %d: %d wrong bytes and %d flipped files", seed, wrong, loss.Flipped)
				}
			}
			borders[len(raw)] = true
		}
		if torn < 50 || flipped < 20 || len(borders) < 3 {
			t.Errorf("unit %d: %d torn, %d flipped, %d borders", unit, torn, flipped, len(borders))
		}
	}
}

func TestDisk_Journal_SurvivesInItsOrder(t *testing.T) {
	t.Parallel()
	counts := map[int]bool{}
	for seed := range uint64(100) {
		d := newDisk(true)
		for i := range 5 {
			d.commit(change{{d.root, fmt.Sprint(i), d.make(syscall.S_IFREG, 0, 0)}})
		}
		after, loss := d.cut(Damage{Survive: 0.5}, rand.New(rand.NewPCG(seed, 0)))
		n := len(after.root.live.entries)
		for i := range n {
			if after.root.live.entries[fmt.Sprint(i)] == nil {
				t.Fatalf("seed %d: entry %d is lost, and a later one is not", seed, i)
			}
		}
		if loss.Entries != 5-n {
			t.Errorf("seed %d: %d entries are lost, want %d", seed, loss.Entries, 5-n)
		}
		counts[n] = true
	}
	if len(counts) < 4 {
		t.Errorf("only these numbers of entries survived: %v", counts)
	}
}
