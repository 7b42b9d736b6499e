package access

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access/accesstest"
	"github.com/kyma-project/keb/libs/testkit"
)

// request returns a request with a bearer token, unless the token is empty.
func request(t testing.TB, token string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://keb.example.org/operations", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// bench has an authenticator with a token file and an issuer.
type bench struct {
	t      *testing.T
	clock  *testkit.Clock
	log    *testkit.Log
	file   string
	issuer *accesstest.Issuer
	cfg    Config
	auth   *Authenticator
}

const (
	viewerToken   = "viewer-token-CANARY"
	operatorToken = "operator-token-CANARY"
)

func newBench(t *testing.T, change func(b *bench)) *bench {
	t.Helper()
	b := &bench{t: t, clock: testkit.NewClock(time.Now()), log: &testkit.Log{}, file: filepath.Join(t.TempDir(), "tokens.yaml")}
	b.issuer = accesstest.NewIssuer(t, b.clock.Now)
	write(t, b.file, line(t, "vera", Viewer, viewerToken)+line(t, "otto", Operator, operatorToken))
	b.cfg = Config{
		TokensFile: b.file, OIDCIssuer: b.issuer.URL(), OIDCAudience: accesstest.Client, OIDCClientSecret: accesstest.Secret,
		OIDCViewers: []string{"keb-viewers"}, OIDCOperators: []string{"keb-operators", "admins"},
	}
	if change != nil {
		change(b)
	}
	var err error
	b.auth, err = New(b.cfg, Deps{Log: b.log.Logger(), Now: b.clock.Now})
	require.NoError(t, err)
	return b
}

// groups returns the claims of a member of these groups.
func groups(names ...string) map[string]any {
	return map[string]any{"groups": names, "preferred_username": "jane"}
}

// ask sends a request through a guard and returns the answer and the authenticated identity.
func ask(t testing.TB, h func(next http.Handler) http.Handler, r *http.Request) (*http.Response, Identity) {
	t.Helper()
	var who Identity
	w := httptest.NewRecorder()
	h(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ = From(r.Context())
		w.WriteHeader(http.StatusNoContent)
	})).ServeHTTP(w, r)
	return w.Result(), who
}

func message(t testing.TB, r *http.Response) string {
	t.Helper()
	var body struct{ Error string }
	require.NoError(t, json.NewDecoder(r.Body).Decode(&body), "the answer is not JSON")
	return body.Error
}
