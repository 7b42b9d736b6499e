package osb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

type handler struct {
	broker          Broker
	auth            Authenticator
	log             *slog.Logger
	observers       []func(context.Context, Observation)
	timeout         time.Duration
	requireOrgSpace bool

	mux      *http.ServeMux
	lost     http.HandlerFunc
	catalogs catalogCache
}

// prefixes are the paths before /v2, as the servers in api/osb.yaml.
func prefixes() []string { return []string{"", "/oauth", "/oauth/{region}"} }

// NewHandler serves a broker under "/", "/oauth" and "/oauth/{region}". It answers other paths with 404. Without WithAuth it answers every
// request with 401.
func NewHandler(b Broker, options ...Option) http.Handler {
	h := &handler{
		broker: b, auth: AnyOf(), log: slog.New(slog.DiscardHandler), timeout: DefaultTimeout, mux: http.NewServeMux(),
	}
	for _, option := range options {
		option(h)
	}
	h.lost = h.serve(route{path: "other", unversioned: true, answer: notFound})
	h.mux.HandleFunc("/", h.lost)
	for path, methods := range routes() {
		allow := strings.Join(sortedMethods(methods), ", ")
		for _, prefix := range prefixes() {
			for method, r := range methods {
				r.path = path
				h.mux.HandleFunc(method+" "+prefix+path, h.serve(r))
			}
			h.mux.HandleFunc(prefix+path, h.serve(route{path: path, unversioned: true, answer: notAllowed(allow)}))
		}
	}
	return h
}

// ServeHTTP rejects paths that the mux would redirect, because clients of this API do not expect redirects.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for segment := range strings.SplitSeq(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/") {
		if segment == "" || segment == "." || segment == ".." {
			h.lost(w, r)
			return
		}
	}
	h.mux.ServeHTTP(w, r)
}

// route is one method of one path.
type route struct {
	path string
	// changes marks a request that may change something. It is completed even if the platform disconnects.
	changes bool
	// unversioned routes do not check the headers of the API.
	unversioned bool
	answer      func(ctx context.Context, x *exchange) (answer, error)
}

// exchange is the state of one request in the handler.
type exchange struct {
	h          *handler
	r          *http.Request
	route      route
	call       Call
	instanceID string
	bindingID  string
	catalog    *Catalog
}

// serve performs the common steps of all routes.
func (h *handler) serve(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		x := &exchange{h: h, r: r, route: rt, call: Call{
			ID: rand.Text(), RequestIdentity: r.Header.Get(HeaderRequestIdentity), UserAgent: r.UserAgent(),
		}}
		if x.call.RequestIdentity != "" {
			w.Header().Set(HeaderRequestIdentity, x.call.RequestIdentity)
		}
		a, err := x.guarded(w)
		code := ""
		if err != nil {
			var e *Error
			e, err = asError(err)
			a, code = e.answer(), e.Code
		}
		if writeErr := a.write(w); writeErr != nil {
			// The only error is an answer of the broker that is not JSON. A disconnected platform is not an error.
			err, a = writeErr, internalError().answer()
			_ = a.write(w)
		}
		h.report(x, a.status, code, time.Since(start), err)
	}
}

// guarded runs the checks and the route, and converts a panic to an error.
func (x *exchange) guarded(w http.ResponseWriter) (a answer, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = panicError(p)
		}
	}()
	principal, err := x.h.auth.Authenticate(x.r)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return answer{}, e
		}
		if challenge := x.h.auth.Challenge(); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		return answer{}, &Error{Status: http.StatusUnauthorized, Description: "valid credentials are required"}
	}
	x.call.Principal = principal
	if !x.route.unversioned {
		if err := x.readHead(); err != nil {
			return answer{}, err
		}
	}
	ctx := x.r.Context()
	if x.route.changes {
		ctx = context.WithoutCancel(ctx)
	}
	if x.h.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, x.h.timeout)
		defer cancel()
	}
	return x.route.answer(ctx, x)
}

// readHead validates and stores the data of the headers and the path.
func (x *exchange) readHead() error {
	version, e := ParseVersion(x.r.Header.Get(HeaderVersion))
	if e != nil {
		return e
	}
	x.call.Version = version
	if _, err := url.ParseQuery(x.r.URL.RawQuery); err != nil {
		return BadRequest("the query cannot be read: it must be of the form name=value&name=value, with escapes such as %%20")
	}
	if header := x.r.Header.Get(HeaderOriginatingIdentity); header != "" {
		if x.call.OriginatingIdentity, e = ParseOriginatingIdentity(header); e != nil {
			return e
		}
	}
	x.call.Region = x.r.PathValue("region")
	x.instanceID = x.r.PathValue("instance_id")
	x.bindingID = x.r.PathValue("binding_id")
	for name, value := range map[string]string{"region": x.call.Region, "instance id": x.instanceID, "binding id": x.bindingID} {
		if e := checkID(name, value); e != nil {
			return e
		}
	}
	return nil
}

// loadCatalog reads the catalog once per request.
func (x *exchange) loadCatalog(ctx context.Context) (*Catalog, error) {
	if x.catalog == nil {
		c, err := x.h.broker.Catalog(ctx, x.call.Region)
		if err != nil {
			return nil, fmt.Errorf("read the catalog: %w", err)
		}
		if c == nil {
			return nil, errors.New("read the catalog: the broker returned none")
		}
		x.catalog = c
	}
	return x.catalog, nil
}

// report logs a request and calls the observers. It omits the raw path and the body, which the client chooses.
func (h *handler) report(x *exchange, status int, code string, took time.Duration, err error) {
	ctx := x.r.Context()
	level := slog.LevelDebug
	switch {
	case status == http.StatusServiceUnavailable:
		level = slog.LevelWarn
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	case status >= http.StatusBadRequest:
		level = slog.LevelInfo
	}
	if h.log.Enabled(ctx, level) {
		attrs := []slog.Attr{
			slog.String("request_id", x.call.ID), slog.String("method", x.r.Method), slog.String("route", x.route.path),
			slog.Int("status", status), slog.Duration("duration", took),
		}
		for _, a := range [...][2]string{
			{"code", code},
			{"instance_id", x.instanceID},
			{"binding_id", x.bindingID},
			{"region", x.call.Region},
			{"request_identity", x.call.RequestIdentity},
			{"principal", x.call.Principal.Name},
		} {
			if a[1] != "" {
				attrs = append(attrs, slog.String(a[0], a[1]))
			}
		}
		if err != nil {
			attrs = append(attrs, slog.Any("err", err))
			if p, ok := errors.AsType[*panicked](err); ok {
				attrs = append(attrs, slog.String("stack", p.stack))
			}
		}
		h.log.LogAttrs(ctx, level, "osb request", attrs...)
	}
	for _, observe := range h.observers {
		observe(ctx, Observation{
			Route: x.route.path, Method: x.r.Method, Status: status, Code: code, Duration: took, Call: x.call,
			InstanceID: x.instanceID, BindingID: x.bindingID,
		})
	}
}

// asError returns the response for an error, and the part of it to log.
func asError(err error) (*Error, error) {
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Status < 400 || e.Status > 599 {
			return internalError(), fmt.Errorf("osb: an error has status %d: %w", e.Status, err)
		}
		return e, err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Unavailable(err), err
	}
	return internalError(), err
}

func internalError() *Error {
	return &Error{Status: http.StatusInternalServerError, Description: "the service broker failed: try again later"}
}

// panicked is the error of a panic. It contains the value only for a runtime error, because any other value could contain
// secrets.
type panicked struct {
	what  string
	stack string
}

func (p *panicked) Error() string { return "osb: panic: " + p.what }

func panicError(value any) error {
	what := fmt.Sprintf("a value of type %T", value)
	if e, ok := value.(runtime.Error); ok {
		what = e.Error()
	}
	return &panicked{what: what, stack: string(debug.Stack())}
}

// catalogCache caches the encoded catalog of each region.
type catalogCache struct {
	mu      sync.Mutex
	entries map[string]catalogEntry
}

type catalogEntry struct {
	catalog *Catalog
	body    []byte
	etag    string
}
