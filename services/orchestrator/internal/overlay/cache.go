package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
)

// ErrConflict reports that another version was added first.
var ErrConflict = errors.New("another version of the overlays was added first")

// changeTries is the number of times that a change is tried if others are faster.
const changeTries = 5

// Store keeps the versions of the applied overlays, and definitions.
type Store interface {
	DefinitionStore
	// Overlays returns the newest version; the zero value if there is none.
	Overlays(ctx context.Context) (Version, error)
	// AddOverlays adds a version. The error is ErrConflict if it already exists.
	AddOverlays(ctx context.Context, v *Version) error
	// CurrentDefinitions returns the definitions that SaveCurrentDefinitions has saved last.
	CurrentDefinitions(ctx context.Context) (process.Set, error)
	SaveCurrentDefinitions(ctx context.Context, current process.Set, now time.Time) error
}

// Config contains the settings of a Cache.
type Config struct {
	// WatchEvery is the interval at which the folders are read.
	WatchEvery time.Duration
	// Timeout bounds the reading of the applied overlays and the use of new definitions.
	Timeout time.Duration
	// BuiltIn are the process files, and Folders the overlay folders in the order in which they apply.
	BuiltIn []process.File
	Folders []fs.FS
}

// Deps contains the dependencies of a Cache. All are required.
type Deps struct {
	Store Store
	NATS  *nats.Conn
	// Changed is called after the definitions have changed.
	Changed func(ctx context.Context)
	Now     func() time.Time
	Log     *slog.Logger
}

// Status describes the overlays of an orchestrator.
type Status struct {
	// Newest is the newest version of the applied overlays that the orchestrator has read, and InUse the number of the version that applies to
	// new operations.
	Newest Version
	InUse  int64
	// Files are the overlay files in the folders that apply.
	Files []process.File
	// Problem is why the newest overlays do not apply, since ProblemSince; nil if they do. The definitions before them then remain.
	Problem      error
	ProblemSince time.Time
}

// Cache combines the overlays, and keeps the definitions current. It is safe for concurrent use.
type Cache struct {
	*replica.Follower

	cfg         Config
	deps        Deps
	definitions *Definitions

	// refreshing is held while the definitions change.
	refreshing sync.Mutex
	// mu guards the other fields.
	mu sync.Mutex
	// folders is the newest content of the folders that two reads have found, and accepted the newest one that could be combined.
	folders, accepted snapshot
	// tried is what was combined last, also without success.
	tried  input
	status Status
}

// input identifies a combination.
type input struct {
	version int64
	folders string
}

// Open combines the overlays. If the applied ones do not fit, the definitions that an orchestrator used last apply. The caller must call Run
// and Watch, and then changes apply.
func Open(ctx context.Context, cfg Config, deps Deps) (*Cache, error) {
	c := &Cache{cfg: cfg, deps: deps, folders: readFolders(cfg.Folders)}
	c.Follower = replica.NewFollower("overlays", event.NoticeOverlays, c.Refresh, deps.NATS, deps.Log)
	newest, err := deps.Store.Overlays(ctx)
	if err != nil {
		return nil, fmt.Errorf("read overlays: %w", err)
	}
	found := c.combine(newest)
	set := found.set
	if set == nil {
		if set, err = deps.Store.CurrentDefinitions(ctx); err != nil {
			return nil, err
		}
		if len(set) == 0 {
			return nil, fmt.Errorf("load processes: %w", found.problem)
		}
	}
	if c.definitions, err = NewDefinitions(ctx, deps.Store, set, deps.Now()); err != nil {
		return nil, err
	}
	return c, c.finish(ctx, newest, found)
}

// Definitions returns the definitions that the Cache keeps current.
func (c *Cache) Definitions() *Definitions { return c.definitions }

// Status returns the current status. The caller must not modify it.
func (c *Cache) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// combined is the result of a combination.
type combined struct {
	// set is nil if the version fits neither the newest folders nor the accepted ones. used are the folders that it fits.
	set  process.Set
	used snapshot
	// newest is the digest of the newest folders.
	newest string
	// problem is why the version does not fit the newest folders, and rejected why it fits neither; nil if it does.
	problem, rejected error
}

// combine combines the built-in processes, the newest folders and the overlays of a version. If that fails, it tries the folders that were
// accepted last.
func (c *Cache) combine(v Version) combined {
	c.mu.Lock()
	newest, accepted := c.folders, c.accepted
	c.mu.Unlock()
	set, err := c.combineWith(newest, v)
	if err == nil {
		return combined{set: set, used: newest, newest: newest.digest}
	}
	failed := combined{newest: newest.digest, problem: err, rejected: err}
	if accepted.digest == "" || accepted.digest == newest.digest {
		return failed
	}
	if set, failed.rejected = c.combineWith(accepted, v); failed.rejected == nil {
		failed.set, failed.used = set, accepted
	}
	return failed
}

func (c *Cache) combineWith(folders snapshot, v Version) (process.Set, error) {
	if folders.err != nil {
		return nil, folders.err
	}
	return process.Combine(c.cfg.BuiltIn, append(slices.Clip(folders.files), v.files()...)...)
}

// Refresh reads the applied overlays. If they or the folders have changed, it combines them for new operations.
func (c *Cache) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	newest, err := c.deps.Store.Overlays(ctx)
	if err != nil {
		return fmt.Errorf("read overlays: %w", err)
	}
	c.mu.Lock()
	unchanged := c.tried == input{newest.Number, c.folders.digest}
	c.mu.Unlock()
	if unchanged {
		return nil
	}
	found := c.combine(newest)
	if found.set != nil {
		if err := c.definitions.Replace(ctx, found.set, c.deps.Now()); err != nil {
			return err
		}
	}
	if err := c.finish(ctx, newest, found); err != nil {
		return err
	}
	if found.set != nil {
		c.deps.Changed(ctx)
	}
	return nil
}

// finish records what was combined.
func (c *Cache) finish(ctx context.Context, newest Version, found combined) error {
	now := c.deps.Now().UTC()
	if found.set != nil {
		if err := c.deps.Store.SaveCurrentDefinitions(ctx, found.set, now); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried = input{newest.Number, found.newest}
	c.status.Newest = newest
	if found.set != nil {
		c.accepted, c.status.InUse, c.status.Files = found.used, newest.Number, found.used.files
	}
	if found.problem == nil {
		c.status.Problem, c.status.ProblemSince = nil, time.Time{}
		c.deps.Log.Info("overlays apply", "version", newest.Number, "applied", len(newest.Overlays), "files", len(found.used.files), "by", newest.By)
		return nil
	}
	if c.status.Problem == nil {
		c.status.ProblemSince = now
	}
	c.status.Problem = found.problem
	c.deps.Log.Error("overlays rejected; the last valid ones apply", "version", newest.Number, "in_use", c.status.InUse, "err", found.problem)
	return nil
}

// Seen compares the version in the database with the one in memory, and combines the overlays again if it is newer. The sweep calls it every
// second, so that a change applies although its notice was lost.
func (c *Cache) Seen(version int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version > c.tried.version {
		c.Soon()
	}
}

// Watch reads the folders until ctx ends. A change applies when two reads in a row find the same content, because a file may be incomplete
// while it is written, and a folder while its files are replaced.
func (c *Cache) Watch(ctx context.Context) error {
	if len(c.cfg.Folders) == 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(c.cfg.WatchEvery)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		found := readFolders(c.cfg.Folders)
		if found.digest == last {
			c.found(found)
		}
		last = found.digest
	}
}

func (c *Cache) found(folders snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.folders = folders
	if folders.digest != c.tried.folders {
		c.Soon()
	}
}

// Outcome is the result of a change.
type Outcome struct {
	// Version is the version that applies after the change. It is that before it if nothing has changed, or only a preview was asked for.
	Version int64
	// Changed reports whether the change makes a difference.
	Changed bool
	// Before and After are the definitions before and after the change, and BuiltIn those without overlays.
	Before, After, BuiltIn process.Set
}

// Change changes the applied overlays for all orchestrators. The result is combined before it is stored; the error is a *RejectedError if it is
// invalid. A preview stores nothing.
func (c *Cache) Change(ctx context.Context, by string, preview bool, change Change) (*Outcome, error) {
	for range changeTries {
		outcome, err := c.change(ctx, by, preview, change)
		if !errors.Is(err, ErrConflict) {
			return outcome, err
		}
	}
	return nil, fmt.Errorf("change overlays: %w", ErrConflict)
}

func (c *Cache) change(ctx context.Context, by string, preview bool, change Change) (*Outcome, error) {
	current, err := c.deps.Store.Overlays(ctx)
	if err != nil {
		return nil, fmt.Errorf("read overlays: %w", err)
	}
	next, err := change(current)
	if err != nil {
		return nil, err
	}
	outcome := &Outcome{Version: current.Number, Changed: !same(current, next), Before: c.definitions.Set()}
	found := c.combine(next)
	if outcome.After = found.set; found.set == nil {
		return nil, &RejectedError{found.rejected}
	}
	if outcome.BuiltIn, err = process.Combine(c.cfg.BuiltIn); err != nil {
		return nil, fmt.Errorf("load processes: %w", err)
	}
	if preview || !outcome.Changed {
		return outcome, nil
	}
	next.Number, next.By, next.At = current.Number+1, by, c.deps.Now().UTC()
	for i := range next.Overlays {
		if o := &next.Overlays[i]; o.Version == 0 {
			o.Version, o.AppliedBy, o.AppliedAt = next.Number, next.By, next.At
		}
	}
	if err := c.deps.Store.AddOverlays(ctx, &next); err != nil {
		return nil, err
	}
	outcome.Version = next.Number
	if err := c.Changed(ctx); err != nil {
		c.deps.Log.Warn("overlays not read; the next read applies the change", "err", err)
	}
	return outcome, nil
}
