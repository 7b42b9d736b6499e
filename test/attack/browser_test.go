package attack

import (
	"net/http"
	"strings"
	"testing"
)

func (w *world) pagesOfOtherSitesCannotAct(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	login := w.one(w.operator, from, request{method: "POST", target: "/console/login", body: `{"token":"` + operatorToken + `"}`})
	set := login.header.Get("Set-Cookie")
	cookie, attributes, _ := strings.Cut(set, ";")
	if login.status != http.StatusOK || !strings.Contains(attributes, "HttpOnly") || !strings.Contains(attributes, "SameSite=Strict") || strings.Contains(set, "Domain") {
		t.Fatalf("login: %d, cookie %q", login.status, set)
	}
	if a := w.one(w.operator, from, request{method: "GET", target: "/me", header: []string{"Cookie: " + cookie}}); a.status != http.StatusOK {
		t.Fatalf("the session does not work: %d %s", a.status, a.body)
	}
	acts := []request{
		{method: "POST", target: "/operations/" + w.operation + "/cancel", header: []string{"Cookie: " + cookie}},
		{method: "POST", target: "/upgrade/kyma", body: "{}", header: []string{"Cookie: " + cookie}},
		{method: "POST", target: "/console/login", body: `{"token":"` + viewerToken + `"}`},
		{method: "POST", target: "/console/logout", header: []string{"Cookie: " + cookie}},
	}
	osb := []request{
		platform(request{method: "POST", target: "/runtimes/" + w.instance + "/deprovision-retrigger"}),
		platform(request{method: "PUT", target: "/expire/service_instance/" + w.instance}),
	}
	for _, form := range []string{"application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		for _, site := range [][]string{
			{"Origin: https://evil.example.org", "Sec-Fetch-Site: cross-site"},
			{"Origin: https://evil.example.org"},
			{"Origin: null"},
			{"Origin: http://" + w.operator + ".evil.example.org", "Sec-Fetch-Site: cross-site"},
			{"Sec-Fetch-Site: same-site"},
			{"Origin: https://evil.example.org", "Host: evil.example.org"},
		} {
			for address, requests := range map[string][]request{w.operator: acts, w.osb: osb} {
				for _, r := range requests {
					r.header, r.form = append(append([]string{}, r.header...), site...), form
					a := w.one(address, from, r)
					tried("pages of other sites", a.status)
					if a.status != http.StatusForbidden && a.status != http.StatusBadRequest {
						t.Errorf("%s %s as %s from %q: %d %.200s", r.method, r.target, form, site, a.status, a.body)
					}
					if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("Access-Control-Allow-Credentials") != "" {
						t.Errorf("%s %s: other sites may read the answer", r.method, r.target)
					}
				}
			}
		}
	}
	for _, r := range []request{
		{method: "OPTIONS", target: "/operations", header: []string{"Origin: https://evil.example.org", "Access-Control-Request-Method: POST"}},
		{method: "GET", target: "/operations", header: []string{"Origin: https://evil.example.org", "Cookie: " + cookie}},
		{method: "GET", target: "/console/", header: []string{"Origin: https://evil.example.org"}},
	} {
		a := w.one(w.operator, from, r)
		tried("pages of other sites", a.status)
		for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods"} {
			if a.header.Get(name) != "" {
				t.Errorf("%s %s: %s: %s", r.method, r.target, name, a.header.Get(name))
			}
		}
	}
}

func (w *world) answersHaveSecurityHeaders(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	for _, target := range []string{"/console/", "/console/operations", "/console/login", "/console/x/y"} {
		a := w.one(w.operator, from, request{method: "GET", target: target})
		policy := a.header.Get("Content-Security-Policy")
		tried("security headers", a.status)
		if !strings.Contains(policy, "default-src 'self'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") ||
			a.header.Get("X-Frame-Options") != "DENY" || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", target, a.header)
		}
	}
	for address, r := range map[string]request{
		w.osb:      platform(request{method: "GET", target: "/v2/service_instances/" + w.instance}),
		w.operator: as(viewerToken, request{method: "GET", target: "/operations/" + w.operation}),
	} {
		a := w.one(address, from, r)
		tried("security headers", a.status)
		if a.status/100 == 2 && a.header.Get("Cache-Control") != "no-store" || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v", r.target, a.status, a.header)
		}
	}
	for _, next := range []string{
		"https://evil.example.org", "//evil.example.org", "/\\evil.example.org", "/console/..//evil.example.org", "/console/%0d%0aSet-Cookie:%20x=y", "javascript:alert(1)",
		"/console//evil.example.org", "/console/\\\\evil.example.org", "%0d%0aLocation:%20https://evil.example.org",
	} {
		for _, target := range []string{"/console/login/oidc?next=", "/console/login/oidc/callback?code=x&state=x&next=", "/?next=", "/console/login?next="} {
			a := w.one(w.operator, from, request{method: "GET", target: target + next})
			tried("redirects", a.status)
			if to := a.header.Get("Location"); strings.Contains(to, "evil") || strings.Contains(a.header.Get("Set-Cookie"), "x=y") || strings.HasPrefix(to, "javascript") {
				t.Errorf("%s%s leads to %q", target, next, to)
			}
			if strings.Contains(a.body, "<script>") {
				t.Errorf("%s%s: the page has a script", target, next)
			}
		}
	}
}
