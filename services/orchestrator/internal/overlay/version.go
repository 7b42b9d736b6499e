// Package overlay combines the built-in processes with overlays: those in folders, and those that operators apply while orchestrators run. It
// provides the current definitions by operation type, and pinned ones by hash: an operation keeps the definition of its request.
package overlay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/process"
)

const (
	// MaxContent is the maximum size of an applied overlay in bytes.
	MaxContent = 64 << 10
	// maxOverlays is the maximum number of applied overlays.
	maxOverlays = 50
)

// Action is the kind of a change.
type Action string

// The actions.
const (
	Apply    Action = "apply"
	Remove   Action = "remove"
	Rollback Action = "rollback"
)

// Overlay is an applied overlay.
type Overlay struct {
	Name    string `json:"name"`
	Content string `json:"content"`
	Digest  string `json:"digest"`
	// Version is the version in which it got this content.
	Version   int64     `json:"version"`
	AppliedBy string    `json:"appliedBy"`
	AppliedAt time.Time `json:"appliedAt"`
}

// Version is a version of the applied overlays. The zero value is the version before the first change.
type Version struct {
	Number int64
	Action Action
	// Name is the overlay that was applied or removed, and Restored the version that was restored.
	Name     string
	Restored int64
	By       string
	At       time.Time
	// Overlays are all applied overlays, sorted by name.
	Overlays []Overlay
}

// ErrNotFound reports that there is no such overlay or version.
var ErrNotFound = errors.New("not found")

// Change makes the next version from the current one. If both have the same overlays, nothing changes. The caller sets Number, By and At.
type Change func(current Version) (Version, error)

// Applied returns the change that applies an overlay, in place of the one with the same name.
func Applied(name, content string) Change {
	return func(current Version) (Version, error) {
		sum := sha256.Sum256([]byte(content))
		next := Version{Action: Apply, Name: name, Overlays: slices.Clone(current.Overlays)}
		applied := Overlay{Name: name, Content: content, Digest: hex.EncodeToString(sum[:])}
		i, found := slices.BinarySearchFunc(next.Overlays, name, byName)
		switch {
		case !found && len(next.Overlays) >= maxOverlays:
			return Version{}, &RejectedError{fmt.Errorf("there are already %d applied overlays, which is the maximum; remove one", maxOverlays)}
		case !found:
			next.Overlays = slices.Insert(next.Overlays, i, applied)
		case next.Overlays[i].Digest != applied.Digest:
			next.Overlays[i] = applied
		}
		return next, nil
	}
}

// Removed returns the change that removes an overlay. The error is ErrNotFound if there is no such overlay.
func Removed(name string) Change {
	return func(current Version) (Version, error) {
		i, found := slices.BinarySearchFunc(current.Overlays, name, byName)
		if !found {
			return Version{}, fmt.Errorf("overlay %q: %w", name, ErrNotFound)
		}
		return Version{Action: Remove, Name: name, Overlays: slices.Delete(slices.Clone(current.Overlays), i, i+1)}, nil
	}
}

// RolledBack returns the change that restores the overlays of an older version.
func RolledBack(to Version) Change {
	return func(Version) (Version, error) {
		return Version{Action: Rollback, Restored: to.Number, Overlays: to.Overlays}, nil
	}
}

func byName(o Overlay, name string) int { return cmp.Compare(o.Name, name) }

// same reports whether two versions have the same overlays with the same content.
func same(a, b Version) bool {
	return slices.EqualFunc(a.Overlays, b.Overlays, func(a, b Overlay) bool { return a.Name == b.Name && a.Digest == b.Digest })
}

// files returns the overlays as files, in the order in which they apply.
func (v Version) files() []process.File {
	files := make([]process.File, len(v.Overlays))
	for i := range v.Overlays {
		files[i] = process.File{Name: "applied/" + v.Overlays[i].Name + ".yaml", Content: []byte(v.Overlays[i].Content)}
	}
	return files
}

// RejectedError reports that overlays cannot be combined, with every problem.
type RejectedError struct{ Err error }

// Error returns the problems, one per line.
func (e *RejectedError) Error() string { return e.Err.Error() }

// Unwrap returns the problems.
func (e *RejectedError) Unwrap() error { return e.Err }
