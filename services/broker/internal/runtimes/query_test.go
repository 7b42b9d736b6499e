package runtimes

import (
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/kyma-project/keb/services/broker/internal/store"
)

func TestParse_NoState_HidesEndedRuntimes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct{ states, without []store.RuntimeState }{
		"":                           {nil, []store.RuntimeState{"suspended", "deprovisioned", "deprovisionincomplete"}},
		"state=suspended":            {[]store.RuntimeState{"suspended"}, nil},
		"state=error&state=error":    {[]store.RuntimeState{"error"}, nil},
		"state=all":                  {nil, nil},
		"state=failed&state=all":     {nil, nil},
		"state=all&account=ga-1":     {nil, nil},
		"state=updating&state=error": {[]store.RuntimeState{"updating", "error"}, nil},
	} {
		q, err := parse(raw)
		if err != nil || !slices.Equal(q.filter.States, want.states) || !slices.Equal(q.filter.Without, want.without) {
			t.Errorf("%q: states %v, without %v, %v", raw, q.filter.States, q.filter.Without, err)
		}
	}
}

// Any query is either rejected with a printable reason, or returns a page that the database can read.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "page=2&page_size=7", "state=all&op_detail=last", "account=a&account=b&plan=aws", "runtime_id=%00", "page=99999999999999999999", "x",
		"shoot=%ff%fe", "expired=true;kyma_config=true",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := parse(raw)
		if err != nil {
			if err.Error() == "" || !utf8.ValidString(err.Error()) || len(err.Error()) > 2000 {
				t.Errorf("%q is refused with %q", raw, err)
			}
			return
		}
		if f := q.filter; f.Limit < 1 || f.Limit > maxPageSize || f.Offset < 0 || f.Offset > maxPage*maxPageSize {
			t.Errorf("%q gives limit %d, offset %d", raw, f.Limit, f.Offset)
		}
		for _, values := range [][]string{q.filter.Accounts, q.filter.InstanceIDs, q.filter.Shoots, q.filter.Plans} {
			for _, v := range values {
				if v == "" || !utf8.ValidString(v) {
					t.Errorf("%q looks for %q", raw, v)
				}
			}
		}
	})
}
