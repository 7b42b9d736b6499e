package attack

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withParameter returns an order with a value in its parameters.
func withParameter(value string) string {
	return strings.Replace(order, `"parameters":{`, `"parameters":{"administrators":`+value+`,`, 1)
}

func nested(depth int, open, end string) string {
	return strings.Repeat(open, depth) + "1" + strings.Repeat(end, depth)
}

func manyKeys(n int) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `"%d":1`, i)
	}
	return b.String() + "}"
}

func zipped(t *testing.T, n int) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(bytes.Repeat([]byte(" "), n))
	require.NoError(t, z.Close())
	return out.String()
}

// hasReason checks that an error answer contains its reason in JSON.
func hasReason(t *testing.T, what string, a answer) {
	t.Helper()
	var body struct{ Error, Description string }
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error+body.Description == "" {
		t.Errorf("%s: %d has no reason: %.200s", what, a.status, a.body)
	}
}

func (w *world) oddBodiesAreRefused(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	big := strings.Repeat("x", 2<<20)
	type attack struct {
		name, body, form string
		header           []string
	}
	attacks := []attack{
		{name: "too long", body: withParameter(`"` + big + `"`)},
		{name: "much too long", body: withParameter(`"` + strings.Repeat(big, 4) + `"`)},
		{name: "too many keys", body: withParameter(manyKeys(1_000_000))},
		{name: "too deep", body: withParameter(nested(200_000, "[", "]"))},
		{name: "as deep as Go allows", body: withParameter(nested(9_000, "[", "]"))},
		{name: "deep objects", body: withParameter(nested(9_000, `{"a":`, "}"))},
		{name: "a huge number", body: withParameter("1e999999999")},
		{name: "a tiny number", body: withParameter("1e-999999999")},
		{name: "a number of many digits", body: withParameter(strings.Repeat("9", 500_000))},
		{name: "half a character", body: withParameter(`"\ud800"`)},
		{name: "halves in a wrong order", body: withParameter(`"\udc00\ud800"`)},
		{name: "no character", body: withParameter(`"\u0000"`)},
		{name: "a raw NUL", body: withParameter("\"\x00\"")},
		{name: "invalid UTF-8", body: withParameter("\"\xff\xfe\"")},
		{name: "an overlong slash", body: withParameter("\"\xc0\xaf\"")},
		{name: "no object", body: "[1]"},
		{name: "null", body: "null"},
		{name: "no JSON", body: "service_id=1"},
		{name: "two values", body: order + order},
		{name: "a cut off value", body: order[:len(order)-3]},
		{name: "a comment", body: "/* */" + order},
		{name: "a byte order mark", body: "\xef\xbb\xbf" + order},
		{name: "a form", body: "a=b", form: "application/x-www-form-urlencoded"},
		{name: "plain text, as a page of another site can send", body: order, form: "text/plain"},
		{name: "a file", body: "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n", form: "multipart/form-data; boundary=x"},
		{name: "another encoding", body: order, form: "application/json; charset=utf-16", header: []string{"Content-Encoding: br"}},
		{name: "a bomb", body: zipped(t, 64<<20), header: []string{"Content-Encoding: gzip"}},
		{name: "another service", body: strings.Replace(order, "47c9dcbf", "00000000", 1)},
		{name: "the service twice", body: strings.TrimSuffix(order, "}") + `,"service_id":"x"}`},
		{name: "another type", body: strings.Replace(order, `"parameters":{`, `"parameters":[{`, 1)},
	}
	for _, at := range attacks {
		r := platform(request{method: "PUT", target: "/v2/service_instances/attack?accepts_incomplete=true", body: at.body, form: at.form, header: at.header})
		a := w.one(w.osb, from, r)
		tried("odd bodies", a.status)
		if a.status < 400 || a.status >= 500 {
			t.Errorf("an order with %s: %d %.300s", at.name, a.status, a.body)
			continue
		}
		hasReason(t, at.name, a)
	}
	for _, target := range []string{"/operations/" + w.operation + "/skip", "/upgrade/kyma"} {
		for _, at := range append(slices.Clip(attacks),
			attack{name: "a step with no character", body: `{"step":"\u0000"}`},
			attack{name: "a step with half a character", body: `{"step":"\ud800"}`},
			attack{name: "a step with a line break", body: `{"step":"a\r\nSet-Cookie: x=y"}`},
			attack{name: "a page", body: `{"step":"<script>alert(1)</script>"}`},
			attack{name: "an injection", body: `{"step":"'; DROP TABLE orchestrator.operations; --"}`},
			attack{name: "a targets bomb", body: `{"targets":{"include":` + nested(5_000, "[", "]") + `}}`},
		) {
			a := w.one(w.operator, from, as(operatorToken, request{method: "POST", target: target, body: at.body, form: at.form, header: at.header}))
			tried("odd bodies", a.status)
			if a.status < 400 || a.status >= 500 {
				t.Errorf("%s with %s: %d %.300s", target, at.name, a.status, a.body)
				continue
			}
			hasReason(t, target+" with "+at.name, a)
		}
	}
}

// oddContextsBreakNothing orders with odd values where a platform may send anything; unknown members are not stored.
func (w *world) oddContextsBreakNothing(t *testing.T, c *clients) {
	from, logged := c.next(), len(w.log.String())
	for n, value := range []string{
		nested(9_000, "[", "]"), nested(9_000, `{"a":`, "}"), "1e999999999", "1e-999999999", strings.Repeat("9", 500_000), `"\ud800"`, `{"\ud800":"\udc00"}`,
		manyKeys(60_000), `"<script>alert(1)</script>"`, `"'; DROP TABLE broker.instances; --"`,
	} {
		for _, member := range []string{"x", "user_id", "license_type", "subaccount_id"} {
			r := platform(request{method: "PUT", target: fmt.Sprintf("/v2/service_instances/odd-%d-%s?accepts_incomplete=true", n, member)})
			r.body = strings.Replace(order, `"user_id":"u"`, `"user_id":"u","license_type":"x","x":1`, 1)
			for _, old := range []string{`"` + member + `":1`, `"` + member + `":"u"`, `"` + member + `":"x"`, `"` + member + `":"s"`} {
				r.body = strings.Replace(r.body, old, `"`+member+`":`+value, 1)
			}
			a := w.one(w.osb, from, r)
			tried("odd contexts", a.status)
			if a.status != http.StatusAccepted && a.status != http.StatusBadRequest && a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s %.100s: %d %.300s", member, value, a.status, a.body)
			}
		}
	}
	for _, ask := range []struct {
		address string
		request request
	}{
		{w.osb, platform(request{method: "GET", target: "/runtimes?op_detail=all&kyma_config=true&cluster_config=true"})},
		{w.osb, platform(request{method: "GET", target: "/info/runtimes"})},
		{w.operator, as(viewerToken, request{method: "GET", target: "/operations"})},
		{w.operator, as(viewerToken, request{method: "GET", target: "/operations?q=script"})},
	} {
		if a := w.one(ask.address, from, ask.request); a.status != http.StatusOK {
			t.Errorf("afterwards %s: %d %.300s", ask.request.target, a.status, a.body)
		}
	}
	for line := range strings.Lines(w.log.String()[logged:]) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "CANARY") {
			t.Errorf("the log: %.500s", line)
		}
	}
}

func (w *world) oddWordsBreakNothing(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	words := map[string]string{
		"no character": "\x00", "no character among others": "a\x00b", "invalid UTF-8": "\xff\xfe", "an overlong slash": "\xc0\xaf", "a line break": "a\r\nX-Injected: 1",
		"a quote": `'`, "an injection": `' OR 1=1; DROP TABLE operations; --`, "a pattern": "%_%", "a backslash": `\`, "a long word": strings.Repeat("x", 20_000),
		"a page": "<script>alert(1)</script>", "a number": "-1", "a huge number": "99999999999999999999", "a template": "{{7*7}}${7*7}", "an emoji": "🧨",
	}
	for what, word := range words {
		w.word(t, from, what, url.QueryEscape(word))
	}
	w.word(t, from, "half an escape", "%zz")
}

// word puts a word into every parameter and path.
func (w *world) word(t *testing.T, from, what, word string) {
	path := strings.ReplaceAll(word, "+", "%20")
	var requests []request
	add := func(r request) { requests = append(requests, r) }
	for _, name := range []string{"state", "type", "waiting", "plan", "instance", "step", "worker", "orchestration", "since", "until", "q", "page", "page_size", "cursor"} {
		add(as(viewerToken, request{method: "GET", target: "/operations?" + name + "=" + word}))
	}
	for _, target := range []string{
		"/stuck?type=", "/stuck?worker=", "/throughput?minutes=", "/throughput?bucket=", "/actions?name=", "/actions?action=", "/actions?target=", "/actions?outcome=",
		"/events?operation_ids=", "/events?instance_ids=", "/orchestrations?state=", "/orchestrations?page=", "/stream?operation=",
	} {
		add(as(viewerToken, request{method: "GET", target: target + word}))
	}
	for _, target := range []string{"/operations/%s", "/orchestrations/%s", "/orchestrations/%s/operations", "/orchestrations/x/operations/%s"} {
		add(as(viewerToken, request{method: "GET", target: fmt.Sprintf(target, path)}))
	}
	for _, target := range []string{"/operations/%s/cancel", "/operations/%s/retry", "/orchestrations/%s/retry"} {
		add(as(operatorToken, request{method: "POST", target: fmt.Sprintf(target, path)}))
	}
	operators := len(requests)
	for _, name := range []string{
		"page", "page_size", "after", "account", "subaccount", "instance_id", "runtime_id", "region", "shoot", "plan", "state", "expired", "op_detail", "kyma_config",
	} {
		add(platform(request{method: "GET", target: "/runtimes?" + name + "=" + word}))
	}
	i := "/v2/service_instances/" + w.instance
	for _, target := range []string{
		"/v2/service_instances/%s", "/v2/service_instances/%s/last_operation", i + "/last_operation?operation=%s", i + "?service_id=%s", i + "?plan_id=%s",
		i + "/service_bindings/%s", i + "/service_bindings/%s/last_operation", "/oauth/%s" + i, "/kubeconfig/%s",
	} {
		add(platform(request{method: "GET", target: fmt.Sprintf(target, path)}))
	}
	add(platform(request{method: "DELETE", target: "/v2/service_instances/" + path + "?" + serviceAndPlan}))
	add(platform(request{method: "POST", target: "/runtimes/" + path + "/deprovision-retrigger"}))
	add(platform(request{method: "PUT", target: "/expire/service_instance/" + path}))
	if !strings.ContainsAny(word, "%") {
		add(platform(request{method: "GET", target: "/v2/catalog", header: []string{"X-Broker-API-Version: " + word}}))
		add(platform(request{method: "GET", target: "/v2/catalog", header: []string{"X-Broker-API-Originating-Identity: " + word}}))
		add(platform(request{method: "GET", target: "/v2/catalog", header: []string{"X-Broker-API-Request-Identity: " + word}}))
	}
	for n, r := range requests {
		address := w.operator
		if n >= operators {
			address = w.osb
		}
		a := w.one(address, from, r)
		tried("odd words in parameters, paths, headers", a.status)
		// An empty search result is fine. The answer must be JSON, and the word must break nothing.
		if a.status == 0 || a.status >= 500 && a.status != http.StatusServiceUnavailable {
			t.Errorf("%s %.200s with %s: %d %.300s", r.method, r.target, what, a.status, a.body)
		}
		if a.header.Get("X-Injected") != "" {
			t.Errorf("%s %.200s with %s: a header is injected", r.method, r.target, what)
		}
		if kind := a.header.Get("Content-Type"); strings.HasPrefix(kind, "text/html") && strings.Contains(a.body, "<script>") {
			t.Errorf("%s %.200s with %s: the answer is a page with the word", r.method, r.target, what)
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" && a.status != http.StatusBadRequest {
			t.Errorf("%s %.200s with %s: a browser may guess what the answer is", r.method, r.target, what)
		}
	}
}

func (w *world) longHeadersAreRefused(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	many := make([]string, 20_000)
	for n := range many {
		many[n] = fmt.Sprintf("X-%d: %d", n, n)
	}
	for name, r := range map[string]request{
		"a long header":     {method: "GET", target: "/", header: []string{"X-Long: " + strings.Repeat("x", 1<<20)}},
		"many headers":      {method: "GET", target: "/", header: many},
		"a long path":       {method: "GET", target: "/" + strings.Repeat("x", 1<<20)},
		"a long query":      {method: "GET", target: "/v2/catalog?" + strings.Repeat("x=1&", 1<<18)},
		"a long cookie":     {method: "GET", target: "/", header: []string{"Cookie: keb-session=" + strings.Repeat("x", 1<<20)}},
		"many cookies":      {method: "GET", target: "/", header: []string{"Cookie: " + strings.Repeat("a=b; ", 200_000)}},
		"a long token":      {method: "GET", target: "/me", header: []string{"Authorization: Bearer " + strings.Repeat("x", 60<<10)}},
		"a token of dots":   {method: "GET", target: "/me", header: []string{"Authorization: Bearer " + strings.Repeat(".", 60<<10)}},
		"a long method":     {method: strings.Repeat("X", 1<<20), target: "/"},
		"a header of nulls": {method: "GET", target: "/v2/catalog", header: []string{"X-Null: \x00\x00"}},
	} {
		for _, address := range []string{w.osb, w.operator} {
			a := w.one(address, from, r)
			tried("long and many headers", a.status)
			if a.status != 0 && (a.status < 400 || a.status >= 500) && a.status != http.StatusSeeOther {
				t.Errorf("%s: %d %.200s", name, a.status, a.body)
			}
			if a.status == http.StatusSeeOther && !strings.Contains(name, "cookies") {
				t.Errorf("%s: it was served", name)
			}
		}
	}
}
