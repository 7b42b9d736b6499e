//go:build linux

package lossyfs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// unmountLimit is the time limit for the last process to close its files.
const unmountLimit = 5 * time.Second

// Config describes a file system.
type Config struct {
	// Dir is the folder that it is mounted on. Required.
	Dir string
	// AllowOther lets other users than that of this process use it. Only root may set it.
	AllowOther bool
	// Strict loses the name of a file that was synced in a folder that was not.
	Strict bool
	// SyncTime is how long an fsync or fdatasync with something to write takes. What is written during that time may be durable or not.
	SyncTime time.Duration
}

// FS is a mounted file system. It is safe for concurrent use, except for Cut, Restore and Close.
type FS struct {
	cfg    Config
	server *fuse.Server
	served chan struct{}

	mu    sync.Mutex
	disk  *disk
	power chan struct{} // closed when the power is cut
	over  chan struct{} // closed when operations that wait since the cut fail
	stats Stats
	slow  time.Duration // per write
	full  bool
}

// Stats counts calls since the file system was mounted for the first time.
type Stats struct {
	Writes, Syncs int
	Written       int64 // bytes
}

// Mount mounts an empty file system. The caller calls Close.
func Mount(cfg Config) (*FS, error) {
	f := &FS{cfg: cfg, disk: newDisk(cfg.Strict)}
	if err := f.mount(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *FS) mount() error {
	f.power, f.over, f.served = make(chan struct{}), make(chan struct{}), make(chan struct{})
	server, err := fuse.NewServer(&calls{RawFileSystem: fuse.NewDefaultRawFileSystem(), fs: f, disk: f.disk, power: f.power, over: f.over}, f.cfg.Dir, &fuse.MountOptions{
		Name: "lossyfs", FsName: "lossyfs", AllowOther: f.cfg.AllowOther, DirectMount: true, Options: []string{"default_permissions"},
		DisableXAttrs: true, DisableReadDirPlus: true, MaxWrite: 1 << 20, Logger: log.New(discard{}, "", 0),
	})
	if err != nil {
		return fmt.Errorf("mount lossyfs on %s: %w", f.cfg.Dir, err)
	}
	f.server = server
	go func(served chan struct{}) {
		defer close(served)
		server.Serve()
	}(f.served)
	if err := server.WaitMount(); err != nil {
		return errors.Join(fmt.Errorf("mount lossyfs on %s: %w", f.cfg.Dir, err), f.unmount())
	}
	return nil
}

// discard drops what the FUSE library logs when a killed process does not wait for its answer.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Stats returns the counters.
func (f *FS) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Slow delays each write from now on; 0 ends that.
func (f *FS) Slow(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = d
}

// Fill takes all free space, so that a write which needs more fails with ENOSPC, or gives it back. A new file that is empty needs none.
func (f *FS) Fill(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

// Sync makes everything durable.
func (f *FS) Sync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disk.apply(f.disk.journal)
	f.disk.journal = nil
	for n := range f.disk.dirty {
		n.sync()
	}
	clear(f.disk.dirty)
}

// Cut cuts the power of file systems at the same moment. From then on all operations wait, and no operation changes anything. Kill the
// processes that use the file systems, and call Release. rnd is required if damage is not zero.
func Cut(damage Damage, rnd *rand.Rand, systems ...*FS) []Loss {
	for _, f := range systems {
		f.mu.Lock()
	}
	losses := make([]Loss, len(systems))
	for i, f := range systems {
		f.disk, losses[i] = f.disk.cut(damage, rnd)
		close(f.power)
	}
	for _, f := range systems {
		f.mu.Unlock()
	}
	return losses
}

// Release fails the operations that wait since Cut, so that killed processes end.
func (f *FS) Release() { close(f.over) }

// Restore mounts what the cut has left. All processes that used the file system must have ended.
func (f *FS) Restore(ctx context.Context) error {
	if err := f.unmountWithin(ctx); err != nil {
		return err
	}
	return f.mount()
}

// Close unmounts the file system. Its content is lost.
func (f *FS) Close() error {
	if f.server == nil {
		return nil
	}
	return f.unmountWithin(context.Background())
}

func (f *FS) unmountWithin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unmountLimit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f.unmount()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("unmount lossyfs from %s: %w", f.cfg.Dir, err)
		case <-tick.C:
		}
	}
}

func (f *FS) unmount() error {
	select {
	case <-f.served: // something else unmounted it
		f.server = nil
		return nil
	default:
	}
	if err := f.server.Unmount(); err != nil {
		return err
	}
	<-f.served
	f.server = nil
	return nil
}

// calls answers the kernel, from one mount to the next cut.
type calls struct {
	fuse.RawFileSystem
	fs          *FS
	disk        *disk
	power, over chan struct{}
	handles     map[uint64][]fuse.DirEntry
	nextHandle  uint64
}

// forever is how long the kernel may keep what it was told: all changes are made through it.
const forever = time.Hour

// begin locks the file system for an operation, unless the power is cut.
func (c *calls) begin() bool {
	c.fs.mu.Lock()
	select {
	case <-c.power:
		c.fs.mu.Unlock()
		<-c.over
		return false
	default:
		return true
	}
}

func (c *calls) end() { c.fs.mu.Unlock() }

// node returns the node of an operation.
func (c *calls) node(id uint64) *node {
	if id == fuse.FUSE_ROOT_ID {
		return c.disk.root
	}
	return c.disk.nodes[id]
}

// String is the name of the file system in messages of the library.
func (c *calls) String() string { return "lossyfs" }

func (c *calls) attr(n *node, out *fuse.Attr) {
	s := &n.live
	links := uint32(n.links)
	if s.isDir() {
		links = 2
	}
	*out = fuse.Attr{
		Ino: n.id, Size: uint64(s.size), Blocks: uint64((s.size + 511) / 512), Blksize: pageSize, Mode: s.mode, Nlink: links,
		Owner: fuse.Owner{Uid: s.uid, Gid: s.gid},
	}
	if s.isDir() {
		out.Size = pageSize
	}
	out.SetTimes(&s.atime, &s.mtime, &s.ctime)
}

// refer tells the kernel about a node, and remembers that the kernel refers to it.
func (c *calls) refer(n *node, out *fuse.EntryOut) {
	n.lookups++
	c.disk.nodes[n.id] = n
	out.NodeId, out.Generation = n.id, 1
	c.attr(n, &out.Attr)
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
}

// Lookup finds an entry of a folder.
func (c *calls) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	n := c.node(in.NodeId).live.entries[name]
	if n == nil {
		return fuse.ENOENT
	}
	c.refer(n, out)
	return fuse.OK
}

// Forget ends references of the kernel.
func (c *calls) Forget(id, count uint64) {
	c.fs.mu.Lock()
	defer c.fs.mu.Unlock()
	n := c.disk.nodes[id]
	if n == nil {
		return
	}
	if n.lookups -= count; n.lookups > 0 {
		return
	}
	delete(c.disk.nodes, id)
	if n.links == 0 {
		delete(c.disk.dirty, n)
	}
}

// GetAttr returns attributes.
func (c *calls) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	c.attr(c.node(in.NodeId), &out.Attr)
	out.SetTimeout(forever)
	return fuse.OK
}

// SetAttr changes attributes and the size.
func (c *calls) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	n := c.node(in.NodeId)
	s := &n.live
	now := time.Now()
	if size, ok := in.GetSize(); ok {
		n.truncate(int64(size))
		s.mtime = now
	}
	if mode, ok := in.GetMode(); ok {
		s.mode = s.mode&syscall.S_IFMT | mode&^syscall.S_IFMT
	}
	if uid, ok := in.GetUID(); ok {
		s.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		s.gid = gid
	}
	if t, ok := in.GetATime(); ok {
		s.atime = t
	}
	if t, ok := in.GetMTime(); ok {
		s.mtime = t
	}
	s.ctime, n.changed = now, true
	c.disk.touch(n)
	c.attr(n, &out.Attr)
	out.SetTimeout(forever)
	return fuse.OK
}

// create makes a node with an entry.
func (c *calls) create(in *fuse.InHeader, name string, mode uint32, target string, out *fuse.EntryOut) (*node, fuse.Status) {
	dir := c.node(in.NodeId)
	if dir.live.entries[name] != nil {
		return nil, fuse.Status(syscall.EEXIST)
	}
	n := c.disk.make(mode, in.Uid, in.Gid)
	n.live.target = target
	c.disk.commit(change{{dir, name, n}})
	c.refer(n, out)
	return n, fuse.OK
}

// Mknod makes a regular file.
func (c *calls) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	if in.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fuse.EPERM
	}
	_, status := c.create(&in.InHeader, name, in.Mode, "", out)
	return status
}

// Mkdir makes a folder.
func (c *calls) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	_, status := c.create(&in.InHeader, name, syscall.S_IFDIR|in.Mode, "", out)
	return status
}

// Symlink makes a symbolic link.
func (c *calls) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	_, status := c.create(in, name, syscall.S_IFLNK|0o777, target, out)
	return status
}

// Readlink returns the target of a symbolic link.
func (c *calls) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	if !c.begin() {
		return nil, fuse.EIO
	}
	defer c.end()
	return []byte(c.node(in.NodeId).live.target), fuse.OK
}

// Link makes a further entry of a file.
func (c *calls) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	dir, n := c.node(in.NodeId), c.node(in.Oldnodeid)
	if dir.live.entries[name] != nil {
		return fuse.Status(syscall.EEXIST)
	}
	c.disk.commit(change{{dir, name, n}})
	c.refer(n, out)
	return fuse.OK
}

// Unlink removes an entry of a file.
func (c *calls) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return c.remove(in, name, false)
}

// Rmdir removes an empty folder.
func (c *calls) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return c.remove(in, name, true)
}

func (c *calls) remove(in *fuse.InHeader, name string, isDir bool) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	dir := c.node(in.NodeId)
	n := dir.live.entries[name]
	switch {
	case n == nil:
		return fuse.ENOENT
	case n.live.isDir() && !isDir:
		return fuse.Status(syscall.EISDIR)
	case !n.live.isDir() && isDir:
		return fuse.ENOTDIR
	case len(n.live.entries) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	c.disk.commit(change{{dir, name, nil}})
	return fuse.OK
}

const renameNoReplace = 1

// Rename moves an entry, and replaces another one.
func (c *calls) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	dir, dest := c.node(in.NodeId), c.node(in.Newdir)
	n, old := dir.live.entries[from], dest.live.entries[to]
	switch {
	case n == nil:
		return fuse.ENOENT
	case in.Flags&^renameNoReplace != 0:
		return fuse.EINVAL
	case old == n:
		return fuse.OK
	case old != nil && in.Flags&renameNoReplace != 0:
		return fuse.Status(syscall.EEXIST)
	case old != nil && old.live.isDir() && !n.live.isDir():
		return fuse.Status(syscall.EISDIR)
	case old != nil && !old.live.isDir() && n.live.isDir():
		return fuse.ENOTDIR
	case old != nil && len(old.live.entries) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	c.disk.commit(change{{dir, from, nil}, {dest, to, n}})
	return fuse.OK
}

// Create makes and opens a file.
func (c *calls) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	_, status := c.create(&in.InHeader, name, syscall.S_IFREG|in.Mode, "", &out.EntryOut)
	return status
}

// Open opens a file. The kernel truncates it by SetAttr.
func (c *calls) Open(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return fuse.OK
}

// Read reads a part of a file.
func (c *calls) Read(_ <-chan struct{}, in *fuse.ReadIn, to []byte) (fuse.ReadResult, fuse.Status) {
	if !c.begin() {
		return nil, fuse.EIO
	}
	defer c.end()
	n := c.node(in.NodeId).live.read(to, int64(in.Offset))
	return fuse.ReadResultData(to[:n]), fuse.OK
}

// Write writes a part of a file, and syncs it when the file was opened so.
func (c *calls) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if !c.begin() {
		return 0, fuse.EIO
	}
	n := c.node(in.NodeId)
	if c.fs.full && !n.has(int64(in.Offset), int64(in.Offset)+int64(len(data))) {
		c.end()
		return 0, fuse.Status(syscall.ENOSPC)
	}
	n.write(data, int64(in.Offset))
	now := time.Now()
	n.live.mtime, n.live.ctime = now, now
	c.disk.touch(n)
	c.fs.stats.Writes++
	c.fs.stats.Written += int64(len(data))
	slow := c.fs.slow
	c.end()
	c.pause(slow)
	if in.Flags&syscall.O_DSYNC != 0 {
		return uint32(len(data)), c.sync(n)
	}
	return uint32(len(data)), fuse.OK
}

// pause waits, at most until the power is cut.
func (c *calls) pause(d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.power:
	case <-timer.C:
	}
}

// sync makes a node durable. That takes time only if there is something to write.
func (c *calls) sync(n *node) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	slow := c.fs.cfg.SyncTime > 0 && (n.unsynced() || slices.ContainsFunc(c.disk.journal, func(change change) bool { return change.touches(n) }))
	c.end()
	if slow {
		c.pause(c.fs.cfg.SyncTime)
	}
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	c.fs.stats.Syncs++
	if n.live.isDir() {
		c.disk.syncDir(n)
	} else {
		c.disk.syncFile(n)
	}
	return fuse.OK
}

// Fsync makes a file durable.
func (c *calls) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status { return c.syncID(in.NodeId) }

// FsyncDir makes a folder durable.
func (c *calls) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status { return c.syncID(in.NodeId) }

func (c *calls) syncID(id uint64) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	n := c.node(id)
	c.end()
	return c.sync(n)
}

// Fallocate extends a file.
func (c *calls) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if in.Mode != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	n := c.node(in.NodeId)
	if end := int64(in.Offset + in.Length); end > n.live.size {
		if c.fs.full {
			return fuse.Status(syscall.ENOSPC)
		}
		n.truncate(end)
		c.disk.touch(n)
	}
	return fuse.OK
}

// Flush is called when a file is closed, and makes nothing durable.
func (c *calls) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// OpenDir remembers the entries of a folder for ReadDir.
func (c *calls) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	n := c.node(in.NodeId)
	list := []fuse.DirEntry{{Name: ".", Ino: n.id, Mode: syscall.S_IFDIR}, {Name: "..", Ino: n.id, Mode: syscall.S_IFDIR}}
	for _, name := range slices.Sorted(maps.Keys(n.live.entries)) {
		child := n.live.entries[name]
		list = append(list, fuse.DirEntry{Name: name, Ino: child.id, Mode: child.live.mode})
	}
	c.nextHandle++
	if c.handles == nil {
		c.handles = map[uint64][]fuse.DirEntry{}
	}
	c.handles[c.nextHandle], out.Fh = list, c.nextHandle
	return fuse.OK
}

// ReadDir returns entries from an offset.
func (c *calls) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if !c.begin() {
		return fuse.EIO
	}
	defer c.end()
	list := c.handles[in.Fh]
	for i := int(in.Offset); i < len(list); i++ {
		e := list[i]
		e.Off = uint64(i) + 1
		if !out.AddDirEntry(e) {
			break
		}
	}
	return fuse.OK
}

// ReleaseDir forgets the entries.
func (c *calls) ReleaseDir(in *fuse.ReleaseIn) {
	c.fs.mu.Lock()
	defer c.fs.mu.Unlock()
	delete(c.handles, in.Fh)
}

// StatFs reports a large empty disk.
func (c *calls) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const blocks = 8 << 30 / pageSize
	*out = fuse.StatfsOut{Blocks: blocks, Bfree: blocks, Bavail: blocks, Files: 1 << 20, Ffree: 1 << 20, Bsize: pageSize, Frsize: pageSize, NameLen: 255}
	return fuse.OK
}
