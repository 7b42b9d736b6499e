package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/kyma-project/keb/libs/access"
)

const (
	root    = Root + "login"
	atOIDC  = root + "/oidc"
	back    = atOIDC + "/callback"
	maxBody = 64 << 10
)

// Login serves the routes. PublicURL is the address of the console as browsers use it, without a trailing slash. The login by OIDC requires
// it.
type Login struct {
	Auth      *access.Authenticator
	Sessions  *access.Sessions
	PublicURL string
	Log       *slog.Logger
}

// Register adds the routes to a mux. They need no role.
func (l *Login) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+root+"/methods", l.methods)
	mux.HandleFunc("POST "+root, l.token)
	mux.HandleFunc("POST "+Root+"logout", l.logout)
	mux.HandleFunc("GET "+atOIDC, l.begin)
	mux.HandleFunc("GET "+back, l.callback)
}

// methods returns the available ways to log in: {"methods": ["token", "oidc"]}. The list is empty if access control is off.
func (l *Login) methods(w http.ResponseWriter, _ *http.Request) {
	methods := []access.Authentication{}
	for _, m := range l.Auth.Methods() {
		if m != access.OIDC || l.PublicURL != "" {
			methods = append(methods, m)
		}
	}
	write(w, map[string]any{"methods": methods})
}

// token logs in with a token from a form or from JSON, and answers like GET /me.
func (l *Login) token(w http.ResponseWriter, r *http.Request) {
	if !l.Auth.Enabled() {
		access.Refuse(w, &access.Error{Status: http.StatusNotFound, Message: "access control is off: no login is needed"})
		return
	}
	token, err := read(w, r)
	if err != nil {
		access.Refuse(w, &access.Error{Status: http.StatusBadRequest, Message: err.Error()})
		return
	}
	i, err := l.Auth.Check(r, token)
	if err == nil {
		err = l.Sessions.Start(w, i)
	}
	if err != nil {
		l.refuse(w, err)
		return
	}
	l.Log.Info("logged in", "name", i.Name, "role", string(i.Role), "authentication", string(i.Authentication))
	write(w, i)
}

func read(w http.ResponseWriter, r *http.Request) (string, error) {
	const want = `body: must be {"token": "..."}, or a form with the field token`
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return "", errors.New(want)
	}
	var token string
	switch media {
	case "application/json":
		var body struct {
			Token string `json:"token"`
		}
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&body); err != nil {
			return "", errors.New(want) // the error may quote the body
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return "", errors.New(want)
		}
		token = body.Token
	case "application/x-www-form-urlencoded":
		if err := r.ParseForm(); err != nil {
			return "", errors.New(want)
		}
		token = r.PostForm.Get("token")
	default:
		return "", errors.New(want)
	}
	if token = strings.TrimSpace(token); token == "" {
		return "", errors.New("token: must not be empty")
	}
	return token, nil
}

func (l *Login) logout(w http.ResponseWriter, _ *http.Request) {
	l.Sessions.End(w)
	w.WriteHeader(http.StatusNoContent)
}

func (l *Login) begin(w http.ResponseWriter, r *http.Request) {
	if l.PublicURL == "" {
		l.show(w, &access.Error{
			Status: http.StatusNotFound, Message: "a login by OIDC needs the address of this console: KEB_OPERATOR_PUBLIC_URL is not set",
		})
		return
	}
	if err := l.Sessions.Begin(w, r, l.PublicURL+back, next(r.URL.Query().Get("next"))); err != nil {
		l.show(w, err)
	}
}

func (l *Login) callback(w http.ResponseWriter, r *http.Request) {
	i, to, err := l.Sessions.Finish(w, r, l.PublicURL+back)
	if err != nil {
		l.show(w, err)
		return
	}
	l.Log.Info("logged in", "name", i.Name, "role", string(i.Role), "authentication", string(i.Authentication))
	http.Redirect(w, r, next(to), http.StatusSeeOther) //nolint:gosec // next returns only pages of the console
}

// next returns a page of the console; Root if the wanted page is elsewhere.
func next(wanted string) string {
	place, query, _ := strings.Cut(wanted, "?")
	if !strings.HasPrefix(place, Root) || path.Clean(place)+"/" != strings.TrimSuffix(place, "/")+"/" || strings.ContainsAny(wanted, "\\\r\n\t\x00") {
		return Root
	}
	if query != "" {
		place += "?" + query
	}
	return place
}

func (l *Login) refuse(w http.ResponseWriter, err error) {
	if _, ok := errors.AsType[*access.Error](err); !ok {
		l.Log.Error("login failed", "err", err)
	}
	access.Refuse(w, err)
}

// show explains in the browser why the login failed.
func (l *Login) show(w http.ResponseWriter, err error) {
	refusal, ok := errors.AsType[*access.Error](err)
	if !ok {
		l.Log.Error("login failed", "err", err)
		refusal = &access.Error{Status: http.StatusInternalServerError, Message: "internal error"}
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(refusal.Status)
	_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Not logged in</title><h1>Not logged in</h1><p>%s</p><p><a href="%s">Back</a></p></html>`,
		html.EscapeString(refusal.Message), Root) // the browser may have disconnected
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
