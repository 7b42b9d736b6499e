package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

// The binary form must give the same values as the text literal.
func TestColumns_Scan_MatchesLiterals(t *testing.T) {
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Database(t, nil), MaxOpen: 1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	texts, ints, bools := newColumn(typeText, 0), newColumn(typeInt4, 3), newColumn(typeBool, 2)
	times, ids, empty := newColumn(typeTimestamptz, 1), newColumn(typeUUID, 1), newColumn(typeUUID, 5)
	for _, s := range nasty {
		texts.text(s)
	}
	texts.textOrNull("")
	texts.list([]string{`a"`, ""})
	texts.list(nil)
	for _, n := range []int{0, -5, 1 << 30} {
		ints.int(n)
	}
	bools.bool(true)
	bools.bool(false)
	bools.null()
	for _, at := range []time.Time{
		{},
		time.Date(2026, 11, 21, 9, 0, 0, 1999, time.FixedZone("", 3600)),
		time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
	} {
		times.time(at)
	}
	id := uuid.Must(uuid.NewV7()).String()
	require.NoError(t, ids.uuid(id))
	var wantTexts array
	for _, s := range nasty {
		wantTexts.text(s)
	}
	wantTexts.null()
	wantTexts.text(`{"a\"",""}`)
	wantTexts.null()
	for _, c := range []struct {
		kind string
		got  column
		want string
	}{
		{"text", texts, wantTexts.String()},
		{"int4", ints, "{0,-5,1073741824}"},
		{"bool", bools, "{t,f,NULL}"},
		{
			"timestamptz", times,
			`{NULL,"2026-11-21 08:00:00.000001Z","0001-01-01 00:00:01Z","9999-12-31 23:59:59.999999Z"}`,
		},
		{"uuid", ids, "{" + id + "}"},
		{"uuid", empty, "{}"},
	} {
		var same bool
		require.NoErrorf(t, db.Get(&same, `SELECT $1::`+c.kind+`[] IS NOT DISTINCT FROM $2::`+c.kind+`[]`, c.got.value(), c.want), "%s", c.kind)
		if !same {
			t.Errorf("%s[] is not %s", c.kind, c.want)
		}
	}
}

func FuzzUUID(f *testing.F) {
	f.Add("0193a3c5-0000-7000-8000-0123456789ab")
	f.Add("0193A3C5-0000-7000-8000-0123456789AB")
	f.Add("0193a3c5-0000-7000-8000-0123456789ag")
	f.Add("0193a3c5x0000x7000x8000x0123456789ab")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		c := newColumn(typeUUID, 1)
		err := c.uuid(s)
		want, wantErr := uuid.Parse(s)
		if err == nil && (wantErr != nil || cmp.Diff(want[:], c.b[columnHeader+4:]) != "") {
			t.Errorf("%q became %x, want %x", s, c.b[columnHeader+4:], want)
		}
		if err != nil && wantErr == nil && s == strings.ToLower(want.String()) {
			t.Errorf("%q is rejected: %v", s, err)
		}
	})
}
