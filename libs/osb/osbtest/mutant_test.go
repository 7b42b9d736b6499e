package osbtest_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbtest"
)

// mutants contains a mutant for each case that concerns data outside of the fake: incoming requests, outgoing answers, and the catalog.
// The bug of the fake breaks every other case.
var mutants = map[string]mutant{
	"G01": status(412, 400), "G02": onVersion("1.0", "2.17"), "G03": onVersion("3.0", "2.17"), "G04": onVersion("2.x", "2.17"),
	"G05": status(200, 412), "G06": onVersion("2.13", "1.0"), "G07": onVersion("2.99", "1.0"),
	"G08": performed(osb.HeaderVersion, "2.17", 412), "G09": onPath("/last_operation", osb.HeaderVersion, "2.17"),
	"G10": answerHeader("WWW-Authenticate", ""), "G11": unlessHeader("Authorization", "Basic", body("another")),
	"G12": status(401, 412), "G13": performed("Authorization", basicUP, 401), "G14": answerHeader(osb.HeaderRequestIdentity, "x"),
	"G15": answerHeader(osb.HeaderRequestIdentity, "x"), "G17": header(osb.HeaderOriginatingIdentity, ""),
	"G18": unlessHeader(osb.HeaderOriginatingIdentity, "cloudfoundry", code(400)),
	"G19": header(osb.HeaderOriginatingIdentity, ""), "G20": ifBody("future", code(400)),
	"G21": unlessHeader("Content-Type", "application", code(400)), "G22": header("Content-Type", "application/json"),
	"G23": header("Content-Type", "text/plain"), "G24": status(400, 422), "G25": status(413, 500),
	"G26": answerHeader("Content-Type", "text/html"), "G28": answerHeader("Allow", ""),
	"G29": {in: func(r *http.Request) {
		if r.Method == http.MethodDelete && !strings.Contains(r.URL.RawQuery, "accepts_incomplete") {
			r.URL.RawQuery += "&accepts_incomplete=true"
		}
	}, out: status(202, 422).out},
	"G30": body("goroutine 1"),

	"C01": inCatalog(func(c *osb.Catalog) { c.Services = nil }),
	"C02": inCatalog(func(c *osb.Catalog) { c.Services[0].Plans = nil }),
	"C03": inCatalog(func(c *osb.Catalog) { c.Services[0].Plans[1].Name = "pa" }),
	"C04": inCatalog(func(c *osb.Catalog) { c.Services[1].Plans[0].ID = "pa" }),
	"C05": replace("plan_updateable", "plan_updatable"),
	"C06": inCatalog(func(c *osb.Catalog) {
		c.Services[0].Plans[0].Schemas.ServiceInstance.Create.Parameters = json.RawMessage(
			`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"http://example.com/other"}`)
	}),
	"C07": inCatalog(func(c *osb.Catalog) { c.Services[0].Plans[4].MaintenanceInfo.Version = "1.2" }),
	"C08": inCatalog(func(c *osb.Catalog) { c.Services[0].Plans[0].MaximumPollingDuration = 60 }),
	"C09": inCatalog(func(c *osb.Catalog) { yes := true; c.Services[0].Plans[3].BindingRotatable = &yes }),
	"C11": answerHeader("ETag", `W/"x"`), "C12": header("If-None-Match", ""), "C13": header("If-None-Match", "*"),
	"C14": answerHeader("ETag", `"x"`), "C15": header("If-Modified-Since", ""),

	"P11": defaultMember("service_id", "s1"), "P12": defaultMember("plan_id", "pa"), "P13": status(400, 404), "P14": status(400, 404),
	"P15": inCatalog(func(c *osb.Catalog) { c.Services[0].Plans = append(c.Services[0].Plans, c.Services[1].Plans[0]) }),
	"P16": defaultMember("organization_guid", 7), "P18": replaceIn(`"parameters":[]`, `"parameters":{"name":"n"}`),
	"P20": status(202, 422), "P21": replaceIn("99.98.97", "1.2.3"), "P22": replaceIn(`"maintenance_info"`, `"other"`),

	"L03": answerHeader("Retry-After", "5"), "L13": query("plan_id"), "L14": dropQuery("plan_id"),
	"L18": replace(`"description":" "`, `"description":""`), "F08": onVersion("2.13", "1.0"), "F09": dropQuery("service_id"),
	"D02": {in: func(r *http.Request) { r.URL.RawQuery += "&service_id=s1&plan_id=pa" }, out: func(r *httptest.ResponseRecorder) {}},
	"D11": dropAndSet("plan_id", "pa"),

	"U02": defaultMember("service_id", "s1"), "U03": replaceIn(`"service_id":"unknown"`, `"service_id":"s1"`),
	"U11": replaceIn(`"px"`, `"pb"`), "U18": status(400, 200), "U22": replaceIn(`"parameters":[]`, `"parameters":{"size":9}`),
	"B04": defaultMember("plan_id", "pa"), "B05": replaceIn(`"pn"`, `"pa"`), "B16": dropAndSet("plan_id", "pa"),
	"B17": replace("{}", `{"credentials":{}}`), "B25": replace(".0Z", "Z"),
	"B29": inCatalog(func(c *osb.Catalog) { yes := true; c.Services[0].Plans[1].BindingRotatable = &yes }),
	"B31": replace(`"ports":["443"]`, `"ports":[443]`),
}

// mutant changes requests before the handler, answers after it, or the catalog. Each function may be nil.
type mutant struct {
	in      func(r *http.Request)
	out     func(w *httptest.ResponseRecorder)
	both    func(r *http.Request) func(w *httptest.ResponseRecorder)
	catalog func(c *osb.Catalog)
}

const basicUP = "Basic dTpw"

func (m mutant) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := m.out
		if m.both != nil {
			out = m.both(r)
		}
		if m.in != nil {
			m.in(r)
		}
		recorded := httptest.NewRecorder()
		next.ServeHTTP(recorded, r)
		if out != nil {
			out(recorded)
		}
		recorded.Header().Del("Content-Length")
		maps.Copy(w.Header(), recorded.Header())
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(recorded.Body.Bytes())
	})
}

func code(n int) mutant { return mutant{out: func(w *httptest.ResponseRecorder) { w.Code = n }} }

func status(from, to int) mutant {
	return mutant{out: func(w *httptest.ResponseRecorder) {
		if w.Code == from {
			w.Code = to
		}
	}}
}

func body(text string) mutant {
	return mutant{out: func(w *httptest.ResponseRecorder) {
		w.Body = bytes.NewBufferString(`{"description":` + strconv.Quote(text) + `}`)
	}}
}

func answerHeader(name, value string) mutant {
	return mutant{out: func(w *httptest.ResponseRecorder) {
		w.Header().Del(name)
		if value != "" {
			w.Header().Set(name, value)
		}
	}}
}

func replace(from, to string) mutant {
	return mutant{out: func(w *httptest.ResponseRecorder) {
		w.Body = bytes.NewBufferString(strings.ReplaceAll(w.Body.String(), from, to))
	}}
}

func header(name, value string) mutant {
	return mutant{in: func(r *http.Request) {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
	}}
}

func onVersion(from, to string) mutant {
	return mutant{in: func(r *http.Request) {
		if r.Header.Get(osb.HeaderVersion) == from {
			r.Header.Set(osb.HeaderVersion, to)
		}
	}}
}

func onPath(suffix, name, value string) mutant {
	return mutant{in: func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, suffix) {
			r.Header.Set(name, value)
		}
	}}
}

// performed executes a request although it lacks a value, and answers as if it had not.
func performed(name, value string, status int) mutant {
	return mutant{both: func(r *http.Request) func(*httptest.ResponseRecorder) {
		if r.Header.Get(name) != "" && r.Header.Get(name) != "Basic dTp3cm9uZw==" {
			return nil
		}
		r.Header.Set(name, value)
		return func(w *httptest.ResponseRecorder) {
			w.Code, w.Body = status, bytes.NewBufferString(`{"description":"refused"}`)
		}
	}}
}

func unlessHeader(name, part string, m mutant) mutant {
	return mutant{both: func(r *http.Request) func(*httptest.ResponseRecorder) {
		if strings.Contains(r.Header.Get(name), part) {
			return nil
		}
		return m.out
	}}
}

// rewriteBody replaces the body of a request.
func rewriteBody(r *http.Request, change func(string) string) {
	var b bytes.Buffer
	_, _ = b.ReadFrom(r.Body)
	text := change(b.String())
	r.Body, r.ContentLength = http.NoBody, int64(len(text))
	if text != "" {
		r.Body = httptest.NewRequest(http.MethodPut, "/", strings.NewReader(text)).Body
	}
}

func ifBody(part string, m mutant) mutant {
	return mutant{both: func(r *http.Request) (out func(*httptest.ResponseRecorder)) {
		rewriteBody(r, func(text string) string {
			if strings.Contains(text, part) {
				out = m.out
			}
			return text
		})
		return out
	}}
}

func replaceIn(from, to string) mutant {
	return mutant{in: func(r *http.Request) {
		rewriteBody(r, func(text string) string { return strings.ReplaceAll(text, from, to) })
	}}
}

func defaultMember(name string, value any) mutant {
	return mutant{in: func(r *http.Request) {
		rewriteBody(r, func(text string) string {
			var members map[string]any
			if json.Unmarshal([]byte(text), &members) != nil {
				return text
			}
			if members[name] == nil || members[name] == "" {
				members[name] = value
			}
			raw, _ := json.Marshal(members)
			return string(raw)
		})
	}}
}

func query(name string) mutant {
	return mutant{in: func(r *http.Request) {
		if q := r.URL.Query(); q.Has(name) {
			q.Set(name, "unknown")
			r.URL.RawQuery = q.Encode()
		}
	}}
}

func dropQuery(name string) mutant {
	return mutant{in: func(r *http.Request) {
		q := r.URL.Query()
		q.Del(name)
		r.URL.RawQuery = q.Encode()
	}}
}

func dropAndSet(name, value string) mutant {
	return mutant{in: func(r *http.Request) {
		if q := r.URL.Query(); q.Has(name) {
			q.Set(name, value)
			r.URL.RawQuery = q.Encode()
		}
	}}
}

func inCatalog(change func(c *osb.Catalog)) mutant { return mutant{catalog: change} }

func TestCases_BrokenBroker_FailsCase(t *testing.T) {
	t.Parallel()
	for _, c := range osbtest.Cases() {
		t.Run(c.ID, func(t *testing.T) {
			t.Parallel()
			m := mutants[c.ID]
			h := newHarness(newFake(c.ID))
			if m.catalog != nil {
				m.catalog(h.catalog)
			}
			cfg := h.config(serve(t, m.wrap(h)))
			cfg.Only, cfg.OperationTimeout = []string{c.ID}, cfg.OperationTimeout/10
			results := osbtest.Check(t.Context(), cfg)
			if len(results) != 1 || results[0].Outcome != osbtest.Failed {
				t.Fatalf("the case does not notice: %+v", results)
			}
			t.Logf("%q", results[0].Messages)
		})
	}
}
