//go:build linux

package lossyfs

import (
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"syscall"
	"time"
)

const pageSize = 4096

// page is a part of a file; nil is a page of zeros. A page that is part of the kept state is never changed.
type page = [pageSize]byte

// state is a file or folder at one moment.
type state struct {
	mode, uid, gid      uint32 // mode includes the type
	atime, mtime, ctime time.Time
	size                int64
	pages               []*page
	entries             map[string]*node
	target              string // of a symbolic link
}

func (s *state) isDir() bool { return s.mode&syscall.S_IFMT == syscall.S_IFDIR }

// resize changes the number of pages to what the size needs.
func (s *state) resize(size int64) {
	s.size = size
	n := int((size + pageSize - 1) / pageSize)
	if n < len(s.pages) {
		clear(s.pages[n:])
		s.pages = s.pages[:n]
		return
	}
	s.pages = append(s.pages, make([]*page, n-len(s.pages))...)
}

func (s *state) read(to []byte, off int64) int {
	if off >= s.size {
		return 0
	}
	to = to[:min(int64(len(to)), s.size-off)]
	for n := 0; n < len(to); {
		at := off + int64(n)
		part := to[n:min(len(to), n+int(pageSize-at%pageSize))]
		if p := s.pages[at/pageSize]; p != nil {
			copy(part, p[at%pageSize:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	return len(to)
}

// extent is a part of a file.
type extent struct{ off, end int64 }

// node is a file, folder or symbolic link.
type node struct {
	id    uint64
	live  state // what programs see
	kept  state // what a cut leaves
	known bool  // kept is set: a folder has a durable entry of it, or had one

	// The changes of live since the last sync: pages that were written, and the number of pages that no truncation touched.
	dirty   map[int64]bool
	intact  int
	changed bool   // the attributes or the size
	last    extent // the last write

	links   int    // live entries of it
	lookups uint64 // references of the kernel
}

// write writes at an offset, and extends the file if necessary.
func (n *node) write(data []byte, off int64) {
	end := off + int64(len(data))
	if end > n.live.size {
		n.live.resize(end)
		n.changed = true
	}
	n.last = extent{off, end}
	for at := off; at < end; {
		i, from := at/pageSize, at%pageSize
		count := copy(n.own(i)[from:], data[at-off:])
		at += int64(count)
	}
}

// has reports whether a part of the file has all its pages.
func (n *node) has(off, end int64) bool {
	for i := off / pageSize; i*pageSize < end; i++ {
		if i >= int64(len(n.live.pages)) || n.live.pages[i] == nil {
			return false
		}
	}
	return true
}

// own returns a page of live that may be changed.
func (n *node) own(i int64) *page {
	if n.dirty[i] && n.live.pages[i] != nil {
		return n.live.pages[i]
	}
	p := new(page)
	if old := n.live.pages[i]; old != nil {
		*p = *old
	}
	n.live.pages[i], n.dirty[i] = p, true
	return p
}

func (n *node) truncate(size int64) {
	if size < n.live.size {
		n.live.resize(size)
		n.intact = min(n.intact, len(n.live.pages))
		for i := range n.dirty {
			if i >= int64(len(n.live.pages)) {
				delete(n.dirty, i)
			}
		}
		// What is behind the end must be zero if the file grows again.
		if rest := size % pageSize; rest > 0 && n.live.pages[size/pageSize] != nil {
			clear(n.own(size / pageSize)[rest:])
		}
		n.last = extent{}
	} else {
		n.live.resize(size)
	}
	n.changed = true
}

// unsynced reports whether a cut would lose a change of the file itself, its entries aside.
func (n *node) unsynced() bool { return n.changed || len(n.dirty) > 0 }

// sync makes the content and the attributes durable, but not the entries of a folder.
func (n *node) sync() {
	entries, pages := n.kept.entries, n.kept.pages
	for i := n.intact; i < len(pages); i++ {
		pages[i] = nil
	}
	n.kept = n.live
	n.kept.entries = entries
	n.kept.pages = pages
	n.kept.resize(n.live.size)
	for i := range n.dirty {
		n.kept.pages[i] = n.live.pages[i]
	}
	n.settle()
}

// settle notes that live and kept are equal.
func (n *node) settle() {
	clear(n.dirty)
	n.intact, n.changed, n.last, n.known = len(n.live.pages), false, extent{}, true
}

// change is a change of entries in the journal. It is durable as a whole or not at all.
type change []entry

// entry says what a name in a folder is from now on; a nil node removes it.
type entry struct {
	dir  *node
	name string
	node *node
}

func (c change) touches(n *node) bool {
	return slices.ContainsFunc(c, func(e entry) bool { return e.dir == n || e.node == n })
}

// disk is the file system without its mount. Its user locks it.
type disk struct {
	root    *node
	nextID  uint64
	nodes   map[uint64]*node // those that the kernel refers to
	journal []change
	dirty   map[*node]bool // files with unsynced changes
	strict  bool
}

func newDisk(strict bool) *disk {
	d := &disk{nextID: 1, nodes: map[uint64]*node{}, dirty: map[*node]bool{}, strict: strict}
	d.root = d.make(syscall.S_IFDIR|0o755, 0, 0)
	d.root.kept, d.root.links = d.root.live, 1
	d.root.kept.entries = map[string]*node{}
	d.root.settle()
	return d
}

// make returns a new node that has no entry yet.
func (d *disk) make(mode, uid, gid uint32) *node {
	now := time.Now()
	n := &node{id: d.nextID, dirty: map[int64]bool{}, live: state{mode: mode, uid: uid, gid: gid, atime: now, mtime: now, ctime: now}}
	if n.live.isDir() {
		n.live.entries, n.kept.entries = map[string]*node{}, map[string]*node{}
	}
	d.nextID++
	return n
}

// commit changes live entries, and appends the change to the journal.
func (d *disk) commit(c change) {
	now := time.Now()
	for _, e := range c {
		if old := e.dir.live.entries[e.name]; old != nil {
			old.links--
			old.live.ctime = now
		}
		if e.node != nil {
			e.node.links++
			e.dir.live.entries[e.name] = e.node
		} else {
			delete(e.dir.live.entries, e.name)
		}
		e.dir.live.mtime, e.dir.live.ctime = now, now
	}
	d.journal = append(d.journal, c)
}

// touch notes that a file has unsynced changes.
func (d *disk) touch(n *node) { d.dirty[n] = true }

// syncFile makes a file durable and, unless the disk is strict, the change that gave it its name, with all earlier ones.
func (d *disk) syncFile(n *node) {
	n.sync()
	delete(d.dirty, n)
	if d.strict {
		return
	}
	for i, c := range slices.Backward(d.journal) {
		if c.touches(n) {
			d.apply(d.journal[:i+1])
			d.journal = slices.Clone(d.journal[i+1:])
			return
		}
	}
}

// syncDir makes the attributes and entries of a folder durable, with those changes of other folders that are part of them.
func (d *disk) syncDir(n *node) {
	n.sync()
	delete(d.dirty, n)
	if !d.strict {
		d.apply(d.journal)
		d.journal = nil
		return
	}
	dirs := map[*node]bool{n: true}
	for before := 0; before < len(dirs); {
		before = len(dirs)
		for _, c := range d.journal {
			if slices.ContainsFunc(c, func(e entry) bool { return dirs[e.dir] }) {
				for _, e := range c {
					dirs[e.dir] = true
				}
			}
		}
	}
	var now, later []change
	for _, c := range d.journal {
		if dirs[c[0].dir] {
			now = append(now, c)
		} else {
			later = append(later, c)
		}
	}
	d.apply(now)
	d.journal = later
}

// apply makes changes of entries durable.
func (d *disk) apply(changes []change) {
	for _, c := range changes {
		for _, e := range c {
			if e.node == nil {
				delete(e.dir.kept.entries, e.name)
				continue
			}
			e.dir.kept.entries[e.name] = e.node
			if !e.node.known {
				// The entry of a new file brings its attributes along, but no content.
				s := &e.node.kept
				s.mode, s.uid, s.gid, s.target = e.node.live.mode, e.node.live.uid, e.node.live.gid, e.node.live.target
				s.atime, s.mtime, s.ctime = e.node.live.atime, e.node.live.mtime, e.node.live.ctime
				e.node.known = true
			}
		}
	}
}

// Damage says what survives a cut besides what was synced. The zero value lets nothing survive.
type Damage struct {
	// Survive is the probability that an unsynced page of a file survives, as if the kernel had written it in time; which ones do is random. With
	// a Survive above zero a random part of the journal, from its beginning, survives too.
	Survive float64
	// Tear lets a part of the last unsynced write of every second file survive, up to a random border of so many bytes. Zero tears nothing.
	Tear int64
	// Flip reports whether bits of that part may be flipped in the file with the path; nil flips none.
	Flip func(path string) bool
}

// Loss counts what a cut has lost.
type Loss struct {
	// Files have lost content, a size or attributes, Bytes are those of their lost pages, and Entries are creations, renames, links and removals.
	Files, Entries int
	Bytes          int64
	// Torn and Flipped are the files with a torn last write, and those with flipped bits.
	Torn, Flipped int
}

// Add adds another loss.
func (l *Loss) Add(other Loss) {
	l.Files += other.Files
	l.Entries += other.Entries
	l.Bytes += other.Bytes
	l.Torn += other.Torn
	l.Flipped += other.Flipped
}

// cut returns a disk with what a cut leaves.
func (d *disk) cut(damage Damage, rnd *rand.Rand) (*disk, Loss) {
	var loss Loss
	paths := d.paths()
	survivors := 0
	if damage.Survive > 0 {
		survivors = rnd.IntN(len(d.journal) + 1)
	}
	d.apply(d.journal[:survivors])
	loss.Entries = len(d.journal) - survivors
	// The order decides what the random numbers are used for.
	for _, n := range slices.SortedFunc(maps.Keys(d.dirty), func(a, b *node) int { return int(a.id) - int(b.id) }) {
		if !n.unsynced() || n.live.isDir() || n.links == 0 {
			continue
		}
		lost := n.lose(damage, paths[n], rnd, &loss)
		loss.Bytes += lost
		if lost > 0 || n.changed {
			loss.Files++
		}
	}
	after := newDisk(d.strict)
	after.root = after.copyOf(d.root, map[*node]*node{})
	after.root.links = 1
	return after, loss
}

// lose changes kept to what a cut leaves of the file's pages, and returns the number of lost bytes.
func (n *node) lose(damage Damage, path string, rnd *rand.Rand, loss *Loss) (lost int64) {
	for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
		if damage.Survive > 0 && rnd.Float64() < damage.Survive {
			n.survive(extent{i * pageSize, min((i+1)*pageSize, n.live.size)})
			continue
		}
		lost += min(pageSize, n.live.size-i*pageSize)
	}
	if damage.Tear <= 0 || n.last.end == n.last.off || rnd.IntN(2) == 0 {
		return lost
	}
	first, end := n.last.off/damage.Tear+1, (n.last.end-1)/damage.Tear // the borders inside of the write
	if first > end {
		return lost
	}
	border := (first + rnd.Int64N(end-first+1)) * damage.Tear
	n.survive(extent{n.last.off, border})
	lost -= border - n.last.off
	loss.Torn++
	if damage.Flip != nil && damage.Flip(path) {
		for range 1 + rnd.IntN(8) {
			at := border - 1 - rnd.Int64N(min(border-n.last.off, damage.Tear))
			n.kept.pages[at/pageSize][at%pageSize] ^= 1 << rnd.IntN(8)
		}
		loss.Flipped++
	}
	return max(lost, 0)
}

// survive copies a part of live to kept.
func (n *node) survive(e extent) {
	if e.end > n.kept.size {
		n.kept.resize(e.end)
	}
	for at := e.off; at < e.end; {
		i, from := at/pageSize, at%pageSize
		until := min(pageSize, from+e.end-at)
		p := new(page)
		if old := n.kept.pages[i]; old != nil {
			*p = *old
		}
		if now := n.live.pages[i]; now != nil {
			copy(p[from:until], now[from:until])
		} else {
			clear(p[from:until])
		}
		n.kept.pages[i] = p
		at += until - from
	}
}

// copyOf returns a node of this disk that is as the kept state of another disk's node. copies holds those that have several entries.
func (d *disk) copyOf(old *node, copies map[*node]*node) *node {
	if n := copies[old]; n != nil {
		return n
	}
	n := d.make(old.kept.mode, old.kept.uid, old.kept.gid)
	copies[old] = n
	n.live = old.kept
	n.live.pages, n.live.entries = slices.Clone(old.kept.pages), nil
	n.kept = old.kept
	n.kept.entries = nil
	if old.kept.isDir() {
		n.live.entries = map[string]*node{}
		for _, name := range slices.Sorted(maps.Keys(old.kept.entries)) {
			child := d.copyOf(old.kept.entries[name], copies)
			child.links++
			n.live.entries[name] = child
		}
		n.kept.entries = maps.Clone(n.live.entries)
	}
	n.settle()
	return n
}

// paths returns the path of each file that has one.
func (d *disk) paths() map[*node]string {
	found := map[*node]string{}
	var walk func(n *node, at string)
	walk = func(n *node, at string) {
		found[n] = at
		for name, child := range n.live.entries {
			walk(child, path.Join(at, name))
		}
	}
	walk(d.root, "/")
	return found
}
