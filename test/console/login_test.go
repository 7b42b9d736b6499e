package console

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access/accesstest"
	"github.com/kyma-project/keb/libs/testkit"
)

// issuer starts an OpenID Connect issuer, at which users of the console can log in. Browsers use the console at another host than the issuer,
// as in a landscape.
func (s *system) issuer() *accesstest.Issuer {
	s.t.Helper()
	s.addr = testkit.Addr(s.t)
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(s.t, err)
	issuer := accesstest.NewIssuer(s.t, time.Now)
	s.Orchestrator.PublicURL = "http://" + net.JoinHostPort("localhost", port)
	issuer.Redirect(s.Orchestrator.PublicURL + "/console/login/oidc/callback")
	a := &s.Orchestrator.Access
	a.OIDCIssuer, a.OIDCAudience, a.OIDCClientSecret = issuer.URL(), accesstest.Client, accesstest.Secret
	a.OIDCViewers, a.OIDCOperators = []string{"viewers"}, []string{"operators"}
	return issuer
}

func TestConsole_LoginByOIDC_GivesTheRoleOfTheUser(t *testing.T) {
	s := thorough(t)
	issuer := s.issuer()
	s.script.set("Register", retry("beta is closed"))
	s.start()
	op := provision("azure")
	s.request(op)

	p := openTab(t, s)
	p.base = s.Orchestrator.PublicURL
	p.forgive("401 (Unauthorized)", "403 (Forbidden)", "a request leaves the origin: "+issuer.URL()+"/authorize?")
	login := func(name, group string) {
		t.Helper()
		issuer.User(map[string]any{"sub": "id-of-" + name, "email": name + "@example.com", "groups": []string{group}})
		p.click("a", "Log in with the identity provider")
	}

	// The login leads back to the page that the user wanted.
	page := "/console/operations/" + op.ID
	p.open(page)
	p.until("only the identity provider is offered", `document.querySelector('.login a') !== null && document.querySelector('input') === null`)
	login("victor", "viewers")
	p.shows(".state-line", "failing")
	p.until("the page is the wanted one", `location.pathname === '`+page+`' && location.search === ''`)
	p.shows(".who", "victor@example.com viewer")
	p.shows(".actions", "You are a viewer")
	p.until("no action is possible", `[...document.querySelectorAll('.actions button')].length > 0 && [...document.querySelectorAll('.actions button')].every((b) => b.disabled)`)
	refused := eval[int](p, `(() => { const r = new XMLHttpRequest(); r.open('POST', '/operations/`+op.ID+`/cancel', false); r.setRequestHeader('Content-Type', 'application/json'); r.send('{}'); return r.status; })()`)
	if refused != 403 {
		t.Errorf("the API answers the action of a viewer with %d", refused)
	}
	p.click("button", "Log out")
	p.shows("h1", "Log in")
	if status := eval[int](p, `(() => { const r = new XMLHttpRequest(); r.open('GET', '/me', false); r.send(); return r.status; })()`); status != 401 {
		t.Errorf("after the logout, /me answers %d", status)
	}

	// Without a role, the page tells the user why nothing is shown.
	login("norma", "cooks")
	p.shows("body", "norma@example.com has no role")
	p.open(page)

	login("olga", "operators")
	p.shows(".who", "olga@example.com operator")
	p.click("button", "Cancel…")
	p.enter(`dialog input`, eval[string](p, `document.querySelector('dialog label code').innerText`))
	p.click("dialog button", "Cancel the operation")
	p.shows(".state-line", "cancelled")
	p.shows("#main", "Cancelled by olga@example.com")
	p.click("nav a", "Actions")
	p.until("the audit names the operator", `[...document.querySelectorAll('tbody tr')].some((r) => ['cancel', 'olga@example.com', 'operator', 'done'].every((text) => r.innerText.includes(text)))`)
	p.click("button", "Log out")
	p.shows("h1", "Log in")
}
