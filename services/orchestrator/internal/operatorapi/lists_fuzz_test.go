package operatorapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
)

// The queries of the smaller lists give a page within limits, or a short error that names the parameter.
func FuzzParseLists(f *testing.F) {
	for _, seed := range []string{
		"", "page=2&page_size=10", "page=-1", "page=99999999999999999999", "page=9223372036854775807&page_size=100", "page_size=0", "outcome=done&name=a",
		"outcome=x", "state=failed", "state=x", "type=provision,update&worker=avs", "type=", "waiting=x", "worker=%ff", "%zz", "page=1;page=2",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = query
		check := func(what string, limit, offset int, err error) {
			switch {
			case err == nil && (limit < 1 || limit > 1000 || offset < 0):
				t.Errorf("%s: %q gives limit %d, offset %d", what, query, limit, offset)
			case err != nil && (len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x00")):
				t.Errorf("%s: the error is %q", what, err)
			}
		}
		actions, err := parseActions(r)
		check("actions", actions.Limit, actions.Offset, err)
		_, limit, offset, err := parseList(r.URL.Query(), []orchestration.State{"failed", "succeeded"})
		check("list", limit, offset, err)
		_, err = parseStuck(r.URL.Query())
		check("stuck", 1, 0, err)
	})
}
