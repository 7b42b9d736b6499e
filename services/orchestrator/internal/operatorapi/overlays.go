package operatorapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// Overlays combines and changes overlays.
type Overlays interface {
	Status() overlay.Status
	Change(ctx context.Context, by string, preview bool, change overlay.Change) (*overlay.Outcome, error)
}

// OverlayVersions reads versions of the applied overlays.
type OverlayVersions interface {
	OverlaysAt(ctx context.Context, version int64) (overlay.Version, error)
	OverlayVersions(ctx context.Context, limit, offset int) ([]overlay.Version, int, error)
}

// maxOverlayBody is the maximum size of a request with an overlay, whose characters may be escaped.
const maxOverlayBody = 2*overlay.MaxContent + maxBody

// overlayNames are the names of overlays, which follow the rule of all names in processes.
var overlayNames = regexp.MustCompile(process.NamePattern)

func (a *API) overlayRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /overlays", a.answer(a.overlays))
	mux.HandleFunc("GET /overlays/versions", a.answer(a.overlayVersions))
	a.actionRoute(mux, "PUT /overlays/{id}", "apply_overlay", a.applyOverlay)
	a.actionRoute(mux, "DELETE /overlays/{id}", "remove_overlay", a.removeOverlay)
	a.actionRoute(mux, "POST /overlays/rollback", "roll_back_overlays", a.rollBackOverlays)
}

func (a *API) overlays(*http.Request) (any, error) {
	status := a.deps.Overlays.Status()
	out := operator.Overlays{
		Version: status.Newest.Number, InUse: status.InUse, ProblemSince: optional(status.ProblemSince),
		Files: make([]operator.OverlayFile, len(status.Files)), Applied: viewOverlays(status.Newest.Overlays, true),
	}
	if status.Problem != nil {
		out.Problem = service.OneLine(status.Problem)
	}
	for i, f := range status.Files {
		sum := sha256.Sum256(f.Content)
		out.Files[i] = operator.OverlayFile{Name: f.Name, Digest: hex.EncodeToString(sum[:])}
	}
	return out, nil
}

func viewOverlays(overlays []overlay.Overlay, withContent bool) []operator.Overlay {
	out := make([]operator.Overlay, len(overlays))
	for i := range overlays {
		o := &overlays[i]
		out[i] = operator.Overlay{Name: o.Name, Digest: o.Digest, Version: o.Version, AppliedBy: o.AppliedBy, AppliedAt: o.AppliedAt.UTC()}
		if withContent {
			out[i].Content = o.Content
		}
	}
	return out
}

func (a *API) overlayVersions(r *http.Request) (any, error) {
	limit, offset, err := parsePage(r.URL.Query())
	if err != nil {
		return nil, badRequest(err)
	}
	found, total, err := a.deps.OverlayVersions.OverlayVersions(r.Context(), limit, offset)
	if err != nil {
		return nil, err
	}
	return listOf(found, total, func(v overlay.Version) operator.OverlayVersion {
		out := operator.OverlayVersion{
			Version: v.Number, Action: string(v.Action), Name: v.Name, By: v.By, Time: v.At, Overlays: viewOverlays(v.Overlays, false),
		}
		if v.Action == overlay.Rollback {
			out.Restored = &v.Restored
		}
		return out
	}), nil
}

func (a *API) applyOverlay(r *http.Request) (any, error) {
	var body operator.OverlayRequest
	if err := decode(r, maxOverlayBody, `"content", "dryRun" and "by"`, &body); err != nil {
		return nil, err
	}
	name := r.PathValue("id")
	switch {
	case !overlayNames.MatchString(name):
		return nil, badRequest(fmt.Errorf(
			"name: %.70q is not a name; a name has at most 64 letters, digits, _ and -, and starts with a letter or digit", name))
	case strings.TrimSpace(body.Content) == "":
		return nil, badRequest(errors.New("content: must be an overlay in YAML (docs/overlays.md)"))
	case len(body.Content) > overlay.MaxContent:
		return nil, badRequest(fmt.Errorf("content: has %d bytes; at most %d are allowed", len(body.Content), overlay.MaxContent))
	}
	return a.changeOverlays(r, body.By, body.DryRun, overlay.Applied(name, body.Content))
}

func (a *API) removeOverlay(r *http.Request) (any, error) {
	var body operator.OverlayRemoval
	if err := decodeOptional(r, maxBody, `"dryRun" and "by"`, &body); err != nil {
		return nil, err
	}
	return a.changeOverlays(r, body.By, body.DryRun, overlay.Removed(r.PathValue("id")))
}

func (a *API) rollBackOverlays(r *http.Request) (any, error) {
	body := operator.OverlayRollback{Version: -1}
	if err := decode(r, maxBody, `"version", "dryRun" and "by"`, &body); err != nil {
		return nil, err
	}
	if body.Version < 0 {
		return nil, badRequest(errors.New("version: must be the number of a version, or 0 for no overlays"))
	}
	note(r.Context(), func(action *store.Action) { action.Target = strconv.FormatInt(body.Version, 10) })
	old, err := a.deps.OverlayVersions.OverlaysAt(r.Context(), body.Version)
	if err != nil {
		return nil, overlayError(err)
	}
	return a.changeOverlays(r, body.By, body.DryRun, overlay.RolledBack(old))
}

// changeOverlays changes the applied overlays, and answers with the differences.
func (a *API) changeOverlays(r *http.Request, claimed string, preview bool, change overlay.Change) (any, error) {
	author := by(r.Context(), claimed)
	outcome, err := a.deps.Overlays.Change(r.Context(), author, preview, change)
	if err != nil {
		return nil, overlayError(err)
	}
	answer := operator.OverlayAnswer{Version: outcome.Version, Changed: outcome.Changed, Warnings: process.Warnings(outcome.BuiltIn, outcome.After)}
	if answer.Warnings == nil {
		answer.Warnings = []string{}
	}
	if answer.Diff, err = processes.Diff(outcome.Before, outcome.After, "now", "new"); err != nil {
		return nil, err
	}
	note(r.Context(), func(action *store.Action) { action.Detail = overlayDetail(outcome, preview) })
	return answer, nil
}

func overlayDetail(outcome *overlay.Outcome, preview bool) string {
	switch {
	case preview:
		return "preview"
	case !outcome.Changed:
		return "no change"
	}
	return fmt.Sprintf("version %d", outcome.Version)
}

func overlayError(err error) error {
	if rejected, ok := errors.AsType[*overlay.RejectedError](err); ok {
		return badRequest(errors.New(service.OneLine(rejected)))
	}
	if errors.Is(err, overlay.ErrNotFound) {
		return notFound(err)
	}
	return err
}
