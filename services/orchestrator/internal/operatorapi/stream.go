package operatorapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator/internal/console"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// StreamPath is the path of the stream of changes, the only request without a time limit.
const StreamPath = "/stream"

const (
	// joinLimit limits the time to connect a client to database and bus.
	joinLimit = 10 * time.Second
	// heartbeat is also the delay until a lost permission of a client is noticed.
	heartbeat = 15 * time.Second
	// sendLimit is the time that a client may take to receive maxPiece bytes.
	sendLimit = 30 * time.Second
	maxPiece  = 64 << 10
	// streamLimit is the maximum duration of a stream. The client reconnects and authenticates again.
	streamLimit = 15 * time.Minute
	// maxStreams limits the streams of one authenticated caller, so that it cannot take those of all other callers.
	maxStreams = 100
	// maxLines is the number of history lines in one event, and historyLimit the time to read and send all of them.
	maxLines     = 500
	historyLimit = time.Minute
)

// Render implements Renderer.
func (a *API) Render(ctx context.Context, ids []string) ([]Rendered, error) {
	rows, err := a.deps.Operations.Read(ctx, ids)
	if err != nil {
		return nil, err
	}
	views, err := a.views(ctx, rows)
	if err != nil {
		return nil, err
	}
	rendered := make([]Rendered, len(rows))
	for i, r := range rows {
		data, err := json.Marshal(&views[i])
		if err != nil {
			return nil, fmt.Errorf("operation %s: encode: %w", r.Operation.ID, err)
		}
		rendered[i] = Rendered{ID: r.Operation.ID, Version: r.Version, Data: data}
	}
	return rendered, nil
}

// listener is a client of the stream.
type listener struct {
	api    *API
	out    *http.ResponseController
	w      http.ResponseWriter
	client *Subscriber
	piece  bytes.Buffer
	// only is the operation that the client subscribes to, and cursor that of the last history line it has received.
	only   string
	cursor int64
	// detail is what the client has of its operation; nil unless it wants the changes of all details.
	detail *sentDetail
	// zipped is nil unless the stream is compressed.
	zipped *zippedStream
}

// audience counts the streams of each authenticated caller. The zero value is ready to use.
type audience struct {
	mu sync.Mutex
	by map[string]int
}

// join counts one more stream until leave is called, unless the limit is reached. Without access control there is no limit by caller.
func (a *audience) join(i access.Identity) (leave func(), ok bool) {
	if i.Authentication == access.None {
		return func() {}, true
	}
	who := string(i.Authentication) + "\n" + i.Name + "\n" + i.Subject
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[who] >= maxStreams {
		return nil, false
	}
	if a.by == nil {
		a.by = map[string]int{}
	}
	a.by[who]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.by[who]--; a.by[who] == 0 {
			delete(a.by, who)
		}
	}, true
}

// resumption is the position at which a client disconnected.
type resumption struct {
	marker store.Marker
	// cursor is -1 if the client listened to all operations.
	cursor int64
}

// parseResumption parses the Last-Event-ID of a client: a marker, optionally followed by a slash and the cursor of a history. It returns
// nil if there is none.
func parseResumption(text string) (*resumption, error) {
	if text == "" {
		return nil, nil
	}
	marker, cursor, one := strings.Cut(text, "/")
	r := &resumption{cursor: -1}
	var err error
	if r.marker, err = store.ParseMarker(marker); err == nil && one {
		if r.cursor, err = strconv.ParseInt(cursor, 10, 64); err == nil && r.cursor < 0 {
			err = strconv.ErrRange
		}
	}
	if err != nil {
		return nil, fmt.Errorf("Last-Event-ID %.50q: must be an id of this stream", text)
	}
	return r, nil
}

func (a *API) stream(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead { // the mux routes it here, and the client would use the connection again while the stream is open
		w.Header().Set("Allow", http.MethodGet)
		a.fail(w, http.StatusMethodNotAllowed, errors.New("the stream of changes can only be read with GET"))
		return
	}
	only, err := id(r.URL.Query(), "operation")
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	last, err := parseResumption(r.Header.Get("Last-Event-ID"))
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	wanted, err := parseDetail(r.URL.Query())
	if err != nil {
		a.fail(w, http.StatusBadRequest, err)
		return
	}
	leave, ok := a.streams.join(caller(r.Context()))
	if !ok {
		a.fail(w, http.StatusServiceUnavailable, fmt.Errorf("you already have %d open streams; close some of them", maxStreams))
		return
	}
	defer leave()
	joining, cancel := context.WithTimeout(r.Context(), joinLimit)
	defer cancel()
	l := &listener{api: a, w: w, out: http.NewResponseController(w), only: only}
	if l.client, err = a.deps.Changes.Join(joining, only); err != nil {
		if errors.Is(err, ErrFull) || errors.Is(err, ErrStopped) {
			a.fail(w, http.StatusServiceUnavailable, err)
			return
		}
		a.internalError(w, r, err)
		return
	}
	defer l.client.Leave()
	if only != "" {
		// The client has joined and receives later changes.
		rows, err := a.deps.Operations.Read(joining, []string{only})
		switch {
		case err != nil:
			a.internalError(w, r, err)
			return
		case len(rows) == 0:
			a.fail(w, http.StatusNotFound, fmt.Errorf("there is no operation %q", only))
			return
		}
		l.cursor = rows[0].Cursor
		if wanted != nil {
			l.cursor, l.detail = min(l.cursor, wanted.after), &sentDetail{}
			if console.AcceptsGzip(r.Header.Get("Accept-Encoding")) {
				l.zipped = &zippedStream{w: w}
			}
		}
		if last != nil && last.cursor >= 0 {
			l.cursor = min(rows[0].Cursor, last.cursor)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamLimit)
	defer cancel()
	if err := l.serve(ctx, last); err != nil && r.Context().Err() == nil {
		a.deps.Log.Debug("stream ended", "err", err)
	}
}

// serve sends changes to the client until it disconnects or the service stops.
func (l *listener) serve(ctx context.Context, last *resumption) error {
	header := l.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	header.Set("Vary", "Accept-Encoding")
	if l.zipped != nil {
		header.Set("Content-Encoding", "gzip")
		defer func() { _ = l.zipped.Close() }() // the client has disconnected
	}
	l.w.WriteHeader(http.StatusOK)
	// The time limits of other requests do not apply to a stream.
	if err := l.out.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	l.piece.WriteString(": connected\n\n")
	if err := l.send(); err != nil {
		return err
	}
	switch {
	case l.detail != nil: // it is sent as it is now
		if err := l.sendDetail(ctx); err != nil {
			return err
		}
		if err := l.send(); err != nil {
			return err
		}
	case last != nil:
		if err := l.client.Resume(ctx, last.marker, l.api.deps.Now()); err != nil {
			return err
		}
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.client.Stopped():
			return nil
		case <-service.Stopping(ctx):
			return nil
		case <-beat.C:
			if err := access.Recheck(ctx); err != nil {
				return fmt.Errorf("access was revoked: %w", err)
			}
			l.piece.WriteString(": alive\n\n")
		case <-l.client.Ready():
			if err := l.sendBatch(ctx, l.client.Take()); err != nil {
				return err
			}
		}
		if err := l.send(); err != nil {
			return err
		}
	}
}

// sendBatch sends a batch.
func (l *listener) sendBatch(ctx context.Context, b News) error {
	if l.detail != nil {
		// A marker is sent after changes were looked for whose notice was lost, and a change of the workers changes why operations wait.
		if err := l.sendDetail(ctx); err != nil {
			return err
		}
		l.position(b.Marker)
		return nil
	}
	if b.Resync != "" {
		data, err := json.Marshal(operator.Resync{Reason: b.Resync})
		if err != nil {
			return err
		}
		if err := l.event("resync", data); err != nil {
			return err
		}
	}
	for _, data := range b.Operations {
		if err := l.event("operation", data); err != nil {
			return err
		}
	}
	if l.only != "" && (b.Resync != "" || len(b.Operations) > 0 || b.Marker != "") {
		if err := l.history(ctx); err != nil {
			return err
		}
	}
	if b.Live != nil {
		if err := l.event("workers", b.Live); err != nil {
			return err
		}
	}
	l.position(b.Marker)
	return nil
}

// position sends the position to resume from, unless it is empty.
func (l *listener) position(marker string) {
	if marker == "" {
		return
	}
	if l.only != "" {
		marker += "/" + strconv.FormatInt(l.cursor, 10)
	}
	l.piece.WriteString("id: " + marker + "\n\n")
}

// history sends the history lines that the client does not have, or that have grown.
func (l *listener) history(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, historyLimit)
	defer cancel()
	history, err := l.api.deps.Operations.History(ctx, l.only)
	if err != nil {
		return err
	}
	if len(linesAfter(history, l.cursor)) == 0 {
		return nil
	}
	rows, err := l.api.deps.Operations.Read(ctx, []string{l.only})
	if err != nil || len(rows) == 0 {
		return err
	}
	p, err := l.api.deps.Definitions.Pinned(ctx, rows[0].Definition)
	if err != nil {
		return err
	}
	return l.sendLines(history, p)
}

// sendLines sends the lines of a history that the client does not have.
func (l *listener) sendLines(history []engine.Entry, p *process.Process) error {
	for lines := range slices.Chunk(viewLines(linesAfter(history, l.cursor), p), maxLines) {
		data, err := json.Marshal(operator.HistoryLines{Operation: l.only, Lines: lines})
		if err != nil {
			return err
		}
		if err := l.event("history", data); err != nil {
			return err
		}
		l.cursor = lines[len(lines)-1].Cursor
	}
	return nil
}

// event writes one event. JSON contains no line breaks.
func (l *listener) event(name string, data []byte) error {
	l.piece.WriteString("event: " + name + "\ndata: ")
	l.piece.Write(data)
	l.piece.WriteString("\n\n")
	if l.piece.Len() >= maxPiece {
		return l.send()
	}
	return nil
}

// send flushes the written data within a time limit.
func (l *listener) send() error {
	if l.piece.Len() == 0 {
		return nil
	}
	if err := l.out.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	var out io.Writer = l.w
	if l.zipped != nil {
		out = l.zipped
	}
	if _, err := out.Write(l.piece.Bytes()); err != nil {
		return err
	}
	l.piece.Reset()
	return l.out.Flush()
}
