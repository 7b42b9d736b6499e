package attack

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit/openapi"
)

func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

const (
	serviceAndPlan = "service_id=47c9dcbf-ff30-448e-ab36-d3bad66ba281&plan_id=4deee563-e5ec-4731-b9b1-53b42d855f0c&accepts_incomplete=true"
	order          = `{"service_id":"47c9dcbf-ff30-448e-ab36-d3bad66ba281","plan_id":"4deee563-e5ec-4731-b9b1-53b42d855f0c",` +
		`"context":{"globalaccount_id":"g","subaccount_id":"s","user_id":"u"},"parameters":{"name":"attack","region":"westeurope"}}`
	binding = `{"service_id":"47c9dcbf-ff30-448e-ab36-d3bad66ba281","plan_id":"4deee563-e5ec-4731-b9b1-53b42d855f0c"}`
)

// platformRoutes returns the broker's routes that need credentials. With credentials, each request would change or return something.
func (w *world) platformRoutes() []request {
	i := "/v2/service_instances/"
	version := []string{"X-Broker-API-Version: 2.17"}
	var all []request
	for _, r := range []request{
		{method: "GET", target: "/v2/catalog"},
		{method: "PUT", target: i + "attack?accepts_incomplete=true", body: order},
		{method: "GET", target: i + w.instance},
		{method: "GET", target: i + w.instance + "/last_operation"},
		{method: "PATCH", target: i + w.instance + "?accepts_incomplete=true", body: order},
		{method: "DELETE", target: i + w.instance + "?" + serviceAndPlan},
		{method: "PUT", target: i + w.instance + "/service_bindings/b?accepts_incomplete=true", body: binding},
		{method: "GET", target: i + w.instance + "/service_bindings/b"},
		{method: "GET", target: i + w.instance + "/service_bindings/b/last_operation"},
		{method: "DELETE", target: i + w.instance + "/service_bindings/b?" + serviceAndPlan},
	} {
		for _, prefix := range []string{"", "/oauth", "/oauth/cf-eu10"} {
			r := r
			r.target, r.header = prefix+r.target, version
			all = append(all, r)
		}
	}
	return append(all,
		request{method: "GET", target: "/runtimes"},
		request{method: "GET", target: "/info/runtimes"},
		request{method: "POST", target: "/runtimes/" + w.instance + "/deprovision-retrigger"},
		request{method: "PUT", target: "/expire/service_instance/" + w.instance},
	)
}

// operatorRoutes returns the orchestrator's routes that need a role.
func (w *world) operatorRoutes() []request {
	w.t.Helper()
	document, err := openapi.Read("../../api/openapi.yaml")
	require.NoError(w.t, err)
	var all []request
	for _, route := range document.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if open := []string{"/healthz", "/readyz", "/metrics"}; slices.Contains(open, path) || strings.HasPrefix(path, "/console/") {
			continue
		}
		all = append(all, request{method: method, target: strings.NewReplacer("{id}", w.operation, "{", "", "}", "").Replace(path), body: "{}"})
	}
	return all
}

// client is an address that no other test used, so that it has no failed attempts.
type clients struct{ n int }

func (c *clients) next() string {
	c.n++
	return fmt.Sprintf("127.0.%d.%d", 1+c.n/250, 1+c.n%250)
}

func (w *world) accessNeedsCredentials(t *testing.T, c *clients) {
	w.unchanged(t)
	good := "Basic " + basic("keb", platformPassword)
	wrong := map[string][]string{
		"nothing":                     nil,
		"an empty header":             {"Authorization:"},
		"a wrong password":            {"Authorization: Basic " + basic("keb", "keb")},
		"a longer password":           {"Authorization: Basic " + basic("keb", platformPassword+"x")},
		"another user":                {"Authorization: Basic " + basic("root", platformPassword)},
		"no password":                 {"Authorization: Basic " + basic("keb", "")},
		"a wrong token":               {"Authorization: Bearer keb_wrong"},
		"a token without a signature": {"Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJvdHRvIn0."},
		"another scheme":              {"Authorization: Digest " + basic("keb", platformPassword)},
		"no scheme":                   {"Authorization: " + platformPassword},
		"two headers, good first":     {"Authorization: " + good, "Authorization: Bearer x"},
		"two headers, good last":      {"Authorization: Bearer x", "Authorization: " + good},
		"two good headers":            {"Authorization: " + good, "Authorization: " + good},
		"a header for a proxy":        {"Proxy-Authorization: " + good},
		"a made up session":           {"Cookie: keb-session=x; __Host-keb-session=x"},
		"the name of a proxy":         {"X-Forwarded-User: olga", "X-Forwarded-For: 127.0.0.1", "X-Remote-User: olga", "Forwarded: for=127.0.0.1"},
		"another method":              {"X-HTTP-Method-Override: GET", "X-Method-Override: GET", "X-HTTP-Method: GET"},
	}
	twoTokens := []string{"Authorization: Bearer " + operatorToken, "Authorization: Bearer " + viewerToken}
	for name, headers := range wrong {
		from := c.next()
		for address, routes := range map[string][]request{w.osb: w.platformRoutes(), w.operator: w.operatorRoutes()} {
			for _, r := range routes {
				r.header = append(append([]string{}, r.header...), headers...)
				if address == w.operator && strings.HasPrefix(name, "two headers") {
					r.header = twoTokens
				}
				a := w.one(address, from, r)
				tried("without the right credentials", a.status)
				switch a.status {
				case http.StatusUnauthorized:
					if a.header.Get("WWW-Authenticate") == "" {
						t.Errorf("%s %s with %s: 401 has no WWW-Authenticate", r.method, r.target, name)
					}
				case http.StatusTooManyRequests:
					if a.header.Get("Retry-After") == "" {
						t.Errorf("%s %s with %s: 429 has no Retry-After", r.method, r.target, name)
					}
				default:
					t.Errorf("%s %s with %s: %d %.200s", r.method, r.target, name, a.status, a.body)
				}
			}
		}
	}
}

func (w *world) viewersCannotAct(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	for address, routes := range map[string][]request{w.osb: w.platformRoutes(), w.operator: w.operatorRoutes()} {
		for _, r := range routes {
			looks := r.method == "GET" && (address == w.operator || strings.Contains(r.target, "runtimes"))
			if looks {
				continue
			}
			for _, trick := range [][]string{nil, {"X-HTTP-Method-Override: GET"}, {"X-Forwarded-User: olga"}} {
				r := as(viewerToken, r)
				r.header = append(r.header, trick...)
				a := w.one(address, from, r)
				tried("a viewer acts", a.status)
				if a.status != http.StatusForbidden && a.status != http.StatusUnauthorized && a.status != http.StatusTooManyRequests {
					t.Errorf("%s %s: %d %.200s", r.method, r.target, a.status, a.body)
				}
			}
		}
	}
}

// paths that a proxy may treat as harmless.
func (w *world) pathsLeadNowhereElse(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	i := "v2/service_instances/" + w.instance + "?" + serviceAndPlan
	o := "operations/" + w.operation + "/cancel"
	for address, targets := range map[string][]string{
		w.osb: {
			"//" + i, "/./" + i, "/x/../" + i, "/%2e/" + i, "/%2e%2e/" + i, "/x/%2e%2e/" + i, "/healthz/../" + i, "/kubeconfig/../" + i, "/kubeconfig/..%2f" + i,
			"/kubeconfig/%2e%2e/" + i, "/V2/service_instances/" + w.instance + "?" + serviceAndPlan, "/v2;x/service_instances/" + w.instance + "?" + serviceAndPlan,
			"/oauth//" + i, "/oauth/%2f" + i, "/oauth/cf-eu10/../" + i, "/v2/service_instances/" + w.instance + "/?" + serviceAndPlan, "/v2%2fservice_instances%2f" + w.instance + "?" + serviceAndPlan,
			"/\\" + i, "http://localhost/" + i, "http://keb:" + platformPassword + "@localhost/" + i, "/" + i + "&access_token=" + operatorToken, "/" + i + "#x", "*", "/%",
		},
		w.operator: {
			"//" + o, "/./" + o, "/x/../" + o, "/%2e%2e/" + o, "/healthz/../" + o, "/console/../" + o, "/console/%2e%2e/" + o, "/console/..%2f" + o, "/console/assets/../../" + o,
			"/Operations/" + w.operation + "/cancel", "/operations;/" + w.operation + "/cancel", "/operations/" + w.operation + "/cancel/", "/operations%2f" + w.operation + "%2fcancel",
			"http://localhost/" + o, "http://olga:" + operatorToken + "@localhost/" + o, "/" + o + "?access_token=" + operatorToken, "/" + o + "?token=" + operatorToken, "*",
		},
	} {
		for _, target := range targets {
			for _, method := range []string{"DELETE", "POST", "GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "delete"} {
				a := w.one(address, from, request{method: method, target: target, header: []string{"X-Broker-API-Version: 2.17"}})
				tried("path and method tricks", a.status)
				fine := a.status >= 400 && a.status < 500 || a.status == http.StatusNotImplemented || a.status == 0
				if to := a.header.Get("Location"); a.status/100 == 3 {
					fine = strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, "/\\")
				}
				// A page of the console is public and contains no data.
				if a.status == http.StatusOK && strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || method == "HEAD" && a.status == http.StatusOK {
					fine = strings.Contains(target, "console")
				}
				if method == "OPTIONS" && target == "*" && a.status == http.StatusOK && a.body == "" {
					fine = true // it concerns the server as a whole and returns no data
				}
				if !fine {
					t.Errorf("%s %s: %d %v %.200s", method, target, a.status, a.header, a.body)
				}
				if method == "TRACE" && strings.Contains(a.body, "X-Broker-API-Version") {
					t.Errorf("TRACE %s repeats the request", target)
				}
				if a.header.Get("Access-Control-Allow-Origin") != "" && !strings.Contains(target, "kubeconfig") {
					t.Errorf("%s %s: pages of other sites may read the answer", method, target)
				}
			}
		}
	}
	for _, host := range []string{"evil.example.org", "localhost", "127.0.0.1:1", "a b", "", "evil.example.org\r\nX-Broker-API-Version: 2.17"} {
		for address, target := range map[string]string{w.osb: "/v2/catalog", w.operator: "/me"} {
			r := request{method: "GET", target: target, host: host}
			if host == "" {
				r.host = " "
			}
			a := w.one(address, from, r)
			tried("host header tricks", a.status)
			if a.status < 400 || a.status >= 500 || strings.Contains(fmt.Sprint(a.header)+a.body, "evil") {
				t.Errorf("Host %q at %s: %d %v %.200s", host, target, a.status, a.header, a.body)
			}
		}
	}
}

// findsThePassword tries wrong passwords until a rejection with 429, and then the right one.
func (w *world) findsThePassword(from string) bool {
	for n := range 60 {
		guess := request{method: "GET", target: "/v2/catalog", header: []string{
			"X-Broker-API-Version: 2.17", "Authorization: Basic " + basic("keb", fmt.Sprint("guess", n)),
		}}
		if w.one(w.osb, from, guess).status == http.StatusTooManyRequests {
			break
		}
	}
	return w.one(w.osb, from, platform(request{method: "GET", target: "/v2/catalog"})).status == http.StatusOK
}

func (w *world) passwordsCannotBeTried(t *testing.T, c *clients) {
	w.unchanged(t)
	thief, other := c.next(), c.next()
	first := 0
	for n := range 60 {
		r := request{method: "GET", target: "/v2/catalog", header: []string{
			"X-Broker-API-Version: 2.17", "Authorization: Basic " + basic("keb", fmt.Sprint("guess", n)),
			fmt.Sprintf("X-Forwarded-For: 10.0.0.%d", n), fmt.Sprintf("Forwarded: for=10.0.0.%d", n), fmt.Sprintf("X-Real-IP: 10.0.0.%d", n),
		}}
		a := w.one(w.osb, thief, r)
		tried("guessed passwords", a.status)
		switch {
		case a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "":
			if first == 0 {
				first = n
			}
		case a.status == http.StatusUnauthorized && first == 0:
		case a.status == http.StatusUnauthorized: // seconds have passed on a busy machine
		default:
			t.Fatalf("guess %d: %d %s", n, a.status, a.body)
		}
	}
	if first == 0 || first > 30 {
		t.Errorf("guesses are refused from guess %d on", first)
	}
	// The right password must not be found among wrong ones, unless a guess has just become due again, which happens every few seconds.
	const guessers = 3
	found := 0
	for range guessers {
		if w.findsThePassword(c.next()) {
			found++
		}
	}
	if found == guessers {
		t.Error("the right password is found among wrong ones")
	}
	for _, from := range []string{other, "127.0.0.1"} {
		if a := w.one(w.osb, from, platform(request{method: "GET", target: "/v2/catalog"})); a.status != http.StatusOK {
			t.Errorf("another client, at %s: %d %s", from, a.status, a.body)
		}
	}
	measured("guessing passwords: rejected from guess %d on, for any X-Forwarded-For; other clients are served", first+1)
}
