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
	mux.HandleFunc("GET /overlays", a.overlays)
	mux.HandleFunc("GET /overlays/versions", a.overlayVersions)
	a.actionRoute(mux, "PUT /overlays/{id}", "apply_overlay", a.applyOverlay)
	a.actionRoute(mux, "DELETE /overlays/{id}", "remove_overlay", a.removeOverlay)
	a.actionRoute(mux, "POST /overlays/rollback", "roll_back_overlays", a.rollBackOverlays)
}

func (a *API) overlays(w http.ResponseWriter, _ *http.Request) {
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
	a.write(w, http.StatusOK, out)
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

func (a *API) overlayVersions(w http.ResponseWriter, r *http.Request) {
	limit, offset, err := parsePage(r.URL.Query())
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	found, total, err := a.deps.OverlayVersions.OverlayVersions(r.Context(), limit, offset)
	if err != nil {
		a.internalError(w, r, err)
		return
	}
	a.write(w, http.StatusOK, listOf(found, total, func(v overlay.Version) operator.OverlayVersion {
		out := operator.OverlayVersion{
			Version: v.Number, Action: string(v.Action), Name: v.Name, By: v.By, Time: v.At, Overlays: viewOverlays(v.Overlays, false),
		}
		if v.Action == overlay.Rollback {
			out.Restored = &v.Restored
		}
		return out
	}))
}

func (a *API) applyOverlay(w http.ResponseWriter, r *http.Request) {
	var body operator.OverlayRequest
	if !a.decode(w, r, maxOverlayBody, `"content", "dryRun" and "by"`, &body) {
		return
	}
	name := r.PathValue("id")
	switch {
	case !overlayNames.MatchString(name):
		a.fail(w, http.StatusBadRequest, fmt.Errorf(
			"name: %.70q is not a name; a name has at most 64 letters, digits, _ and -, and starts with a letter or digit", name))
		return
	case strings.TrimSpace(body.Content) == "":
		a.fail(w, http.StatusBadRequest, errors.New("content: must be an overlay in YAML (docs/overlays.md)"))
		return
	case len(body.Content) > overlay.MaxContent:
		a.fail(w, http.StatusBadRequest, fmt.Errorf("content: has %d bytes; at most %d are allowed", len(body.Content), overlay.MaxContent))
		return
	}
	a.changeOverlays(w, r, body.By, body.DryRun, overlay.Applied(name, body.Content))
}

func (a *API) removeOverlay(w http.ResponseWriter, r *http.Request) {
	var body operator.OverlayRemoval
	if r.ContentLength != 0 && !a.decode(w, r, maxBody, `"dryRun" and "by"`, &body) {
		return
	}
	a.changeOverlays(w, r, body.By, body.DryRun, overlay.Removed(r.PathValue("id")))
}

func (a *API) rollBackOverlays(w http.ResponseWriter, r *http.Request) {
	body := operator.OverlayRollback{Version: -1}
	if !a.decode(w, r, maxBody, `"version", "dryRun" and "by"`, &body) {
		return
	}
	if body.Version < 0 {
		a.fail(w, http.StatusBadRequest, errors.New("version: must be the number of a version, or 0 for no overlays"))
		return
	}
	note(r.Context(), func(action *store.Action) { action.Target = strconv.FormatInt(body.Version, 10) })
	old, err := a.deps.OverlayVersions.OverlaysAt(r.Context(), body.Version)
	if err != nil {
		a.overlayError(w, r, err)
		return
	}
	a.changeOverlays(w, r, body.By, body.DryRun, overlay.RolledBack(old))
}

// changeOverlays changes the applied overlays, and answers with the differences.
func (a *API) changeOverlays(w http.ResponseWriter, r *http.Request, claimed string, preview bool, change overlay.Change) {
	author := by(r.Context(), claimed)
	outcome, err := a.deps.Overlays.Change(r.Context(), author, preview, change)
	if err != nil {
		a.overlayError(w, r, err)
		return
	}
	answer := operator.OverlayAnswer{Version: outcome.Version, Changed: outcome.Changed, Warnings: process.Warnings(outcome.BuiltIn, outcome.After)}
	if answer.Warnings == nil {
		answer.Warnings = []string{}
	}
	if answer.Diff, err = processes.Diff(outcome.Before, outcome.After, "now", "new"); err != nil {
		a.internalError(w, r, err)
		return
	}
	note(r.Context(), func(action *store.Action) { action.Detail = overlayDetail(outcome, preview) })
	a.write(w, http.StatusOK, answer)
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

func (a *API) overlayError(w http.ResponseWriter, r *http.Request, err error) {
	rejected, isRejected := errors.AsType[*overlay.RejectedError](err)
	switch {
	case isRejected:
		a.fail(w, http.StatusBadRequest, errors.New(service.OneLine(rejected)))
	case errors.Is(err, overlay.ErrNotFound):
		a.fail(w, http.StatusNotFound, err)
	case errors.Is(err, overlay.ErrConflict):
		a.fail(w, http.StatusConflict, err)
	default:
		a.internalError(w, r, err)
	}
}
