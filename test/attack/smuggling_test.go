package attack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// nothingIsSmuggled hides a request that would deprovision or cancel, with credentials, behind one whose length is ambiguous between two
// servers.
func (w *world) nothingIsSmuggled(t *testing.T, c *clients) {
	w.unchanged(t)
	from := c.next()
	chunk := func(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }
	for address, r := range map[string]request{
		w.osb:      platform(request{method: "DELETE", target: "/v2/service_instances/" + w.instance + "?" + serviceAndPlan}),
		w.operator: as(operatorToken, request{method: "POST", target: "/operations/" + w.operation + "/cancel"}),
	} {
		hidden := r.text(address, true)
		host := "Host: " + address + "\r\n"
		post := "POST /v2/catalog HTTP/1.1\r\n" + host
		for name, text := range map[string]string{
			"CL.TE":                               post + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 5+len(hidden)) + hidden,
			"TE.CL":                               post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(hidden),
			"TE.TE with an unknown coding":        post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\nContent-Length: 0\r\n\r\n" + hidden,
			"TE.TE twice":                         post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
			"an unknown coding":                   post + "Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + hidden,
			"a coding with a tab":                 post + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + hidden,
			"a coding with a vertical tab":        post + "Transfer-Encoding: \vchunked\r\nContent-Length: 0\r\n\r\n" + hidden,
			"a coding in quotes":                  post + "Transfer-Encoding: \"chunked\"\r\nContent-Length: 0\r\n\r\n" + hidden,
			"two codings":                         post + "Transfer-Encoding: chunked, identity\r\nContent-Length: 0\r\n\r\n" + hidden,
			"a folded coding":                     post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden,
			"a folded header":                     post + "X: 1\r\n Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
			"two lengths":                         post + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n", len(hidden)) + hidden,
			"two lengths in one":                  post + fmt.Sprintf("Content-Length: 0, %d\r\n\r\n", len(hidden)) + hidden,
			"a length with a sign":                post + "Content-Length: +0\r\n\r\n" + hidden,
			"a length below zero":                 post + "Content-Length: -1\r\n\r\n" + hidden,
			"a hexadecimal length":                post + "Content-Length: 0x0\r\n\r\n" + hidden,
			"a huge length":                       post + "Content-Length: 99999999999999999999\r\n\r\n" + hidden,
			"a space before the colon":            post + "Content-Length : 0\r\n\r\n" + hidden,
			"a space before the colon of chunked": post + "Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
			"a space before the header":           post + " Content-Length: 0\r\nX: y\r\n\r\n" + hidden,
			"no colon":                            post + "Content-Length\r\n\r\n" + hidden,
			"a bare CR":                           post + "X: y\rContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
			"a NUL in a header":                   post + "X: \x00\r\nContent-Length: 0\r\n\r\n" + hidden,
			"no host":                             "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n" + hidden,
			"two hosts":                           post + host + "Content-Length: 0\r\n\r\n" + hidden,
			"no version":                          "POST /\r\n" + host + "\r\n" + hidden,
			"HTTP/0.9":                            "GET /v2/catalog\r\n" + hidden,
			"HTTP/1.0 that stays":                 "POST / HTTP/1.0\r\n" + host + "Connection: keep-alive\r\nContent-Length: 0\r\n\r\n" + hidden,
			"HTTP/1.0 in chunks":                  "POST / HTTP/1.0\r\n" + host + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + hidden,
			"HTTP/1.2":                            "POST / HTTP/1.2\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
			"HTTP/2 without asking":               "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden,
			"an upgrade to HTTP/2":                post + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
			"a chunk of a wrong size":             post + "Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n" + hidden,
			"a chunk of no size":                  post + "Transfer-Encoding: chunked\r\n\r\n\r\n" + hidden,
			"a chunk of a huge size":              post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx\r\n0\r\n\r\n" + hidden,
			"a chunk of a size below zero":        post + "Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n" + hidden,
			"a chunk with a long extension":       post + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 100_000) + "\r\nx\r\n0\r\n\r\n" + hidden,
			"a chunk with an extension that ends": post + "Transfer-Encoding: chunked\r\n\r\n0;\n\r\n\r\n" + hidden,
			"a chunk that ends with a bare LF":    post + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n" + hidden,
			"a trailer":                           post + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 100\r\nAuthorization: x\r\n\r\n" + hidden,
			"behind an error":                     "GET / HTTP/9.9\r\n" + host + "\r\n" + hidden,
			"behind a body that is too long":      post + "Content-Length: 100000000\r\n\r\n" + hidden,
			"behind bare LFs":                     "POST / HTTP/1.1\n" + host + "Transfer-Encoding: chunked\n\n0\n\n" + hidden,
			"in a target":                         "GET /v2/catalog HTTP/1.1%0d%0a%0d%0a" + strings.ReplaceAll(hidden, "\r\n", "%0d%0a") + " HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
		} {
			answers := w.talk(t, address, from, "POST", text)
			status := 0
			if len(answers) > 0 {
				status = answers[0].status
			}
			tried("smuggled requests", status)
			if len(answers) > 1 && answers[0].status != http.StatusContinue {
				t.Errorf("%s: the hidden request was answered: %d %.200s", name, answers[1].status, answers[1].body)
			}
			if status != 0 && status < 400 {
				t.Errorf("%s: %d", name, status)
			}
		}
		// With an unambiguous length, the second request is a request.
		answers := w.talk(t, address, from, "POST", post+"Content-Length: 0\r\n\r\n"+strings.Replace(strings.Replace(hidden, w.instance, "none", 1), w.operation, "none", 1))
		if len(answers) != 2 || answers[1].status == http.StatusUnauthorized {
			t.Errorf("two plain requests on one connection get %d answers", len(answers))
		}
	}
}
