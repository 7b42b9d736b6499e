package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Overlays are the overlays that change the built-in processes of new operations.
type Overlays struct {
	// Version is the newest version of the applied overlays; 0 if none was applied yet. InUse is the version that new operations use. It is
	// older only while there is a problem.
	Version int64 `json:"version"`
	InUse   int64 `json:"inUse"`
	// Problem is why the newest overlays are rejected. The last valid ones then apply.
	Problem      string     `json:"problem,omitempty"`
	ProblemSince *time.Time `json:"problemSince,omitempty"`
	// Files are the overlay files of the orchestrator in the order in which they apply, and Applied the applied overlays, which follow.
	Files   []OverlayFile `json:"files"`
	Applied []Overlay     `json:"applied"`
}

// OverlayFile is a file in a folder of KEB_OVERLAYS.
type OverlayFile struct {
	Name string `json:"name"`
	// Digest is the SHA-256 digest of the content, in hexadecimal digits.
	Digest string `json:"digest"`
}

// Overlay is an applied overlay.
type Overlay struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Version is the version in which it got this content.
	Version   int64     `json:"version"`
	AppliedBy string    `json:"appliedBy"`
	AppliedAt time.Time `json:"appliedAt"`
	// Content is the overlay in YAML, as it was applied. Lists of versions do not have it.
	Content string `json:"content,omitempty"`
}

// OverlayVersion is a version of the applied overlays.
type OverlayVersion struct {
	Version int64  `json:"version"`
	Action  string `json:"action" jsonschema:"enum=apply,enum=remove,enum=rollback"`
	// Name is the overlay that was applied or removed, and Restored the version that a rollback restored.
	Name     string    `json:"name,omitempty"`
	Restored *int64    `json:"restored,omitempty"`
	By       string    `json:"by"`
	Time     time.Time `json:"time"`
	// Overlays are all applied overlays in this version.
	Overlays []Overlay `json:"overlays"`
}

// OverlayRequest applies an overlay, in place of the one with the same name.
type OverlayRequest struct {
	// Content is the overlay in YAML (docs/overlays.md).
	Content string `json:"content"`
	// DryRun checks the overlay and returns the differences without applying it.
	DryRun bool `json:"dryRun,omitempty"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// OverlayRemoval removes an overlay.
type OverlayRemoval struct {
	// DryRun returns the differences without removing the overlay.
	DryRun bool `json:"dryRun,omitempty"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// OverlayRollback restores the overlays of an older version.
type OverlayRollback struct {
	// Version is the version to restore. The version 0 has no overlays.
	Version int64 `json:"version"`
	// DryRun returns the differences without restoring the version.
	DryRun bool `json:"dryRun,omitempty"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// OverlayAnswer is the answer to a change of the applied overlays.
type OverlayAnswer struct {
	// Version is the newest version of the applied overlays.
	Version int64 `json:"version"`
	// Changed reports whether the request makes a difference to the applied overlays.
	Changed bool `json:"changed"`
	// Diff are the differences of the processes as unified diffs, with one line for each step; empty if there are none.
	Diff string `json:"diff"`
	// Warnings describe changes to the built-in processes that are valid and probably not intended.
	Warnings []string `json:"warnings"`
}

// Overlays returns the overlays, and the raw answer.
func (c *Client) Overlays(ctx context.Context) (*Overlays, json.RawMessage, error) {
	return read[Overlays](ctx, c, "/overlays", nil, "read overlays")
}

// OverlayVersions returns the versions of the applied overlays, newest first, and the raw answer.
func (c *Client) OverlayVersions(ctx context.Context, p Page) (*List[OverlayVersion], json.RawMessage, error) {
	return read[List[OverlayVersion]](ctx, c, "/overlays/versions", p.query(), "list versions of overlays")
}

// ApplyOverlay applies an overlay, or previews it, and returns the raw answer, too.
func (c *Client) ApplyOverlay(ctx context.Context, name string, r OverlayRequest) (*OverlayAnswer, json.RawMessage, error) {
	return c.changeOverlays(ctx, http.MethodPut, "/overlays/"+url.PathEscape(name), r, "apply overlay "+name)
}

// RemoveOverlay removes an overlay, or previews it, and returns the raw answer, too. The error is ErrNotFound if there is no such overlay.
func (c *Client) RemoveOverlay(ctx context.Context, name string, r OverlayRemoval) (*OverlayAnswer, json.RawMessage, error) {
	return c.changeOverlays(ctx, http.MethodDelete, "/overlays/"+url.PathEscape(name), r, "remove overlay "+name)
}

// RollBackOverlays restores a version of the overlays, or previews it, and returns the raw answer, too. The error is ErrNotFound if there is no
// such version.
func (c *Client) RollBackOverlays(ctx context.Context, r OverlayRollback) (*OverlayAnswer, json.RawMessage, error) {
	return c.changeOverlays(ctx, http.MethodPost, "/overlays/rollback", r, "restore version "+strconv.FormatInt(r.Version, 10)+" of the overlays")
}

func (c *Client) changeOverlays(ctx context.Context, method, path string, request any, what string) (*OverlayAnswer, json.RawMessage, error) {
	return write[OverlayAnswer](ctx, c, method, path, request, "%s", what)
}
