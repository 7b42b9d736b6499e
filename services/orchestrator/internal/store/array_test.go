package store

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
)

func TestArray_Values_EncodeAsLiterals(t *testing.T) {
	var empty, values, times, lists array
	values.text("")
	values.textOrNull("")
	values.text(`a"b\c`)
	values.null()
	values.int(-5)
	times.time(time.Time{})
	times.time(time.Date(2026, 11, 21, 9, 0, 0, 1999, time.FixedZone("", 3600)))
	lists.list(nil)
	lists.list([]string{`a"`, ""})
	for _, c := range []struct {
		a    *array
		want string
	}{
		{&empty, `{}`},
		{&values, `{"",NULL,"a\"b\\c",NULL,-5}`},
		{&times, `{NULL,"2026-11-21 08:00:00.000001Z"}`},
		{&lists, `{NULL,"{\"a\\\"\",\"\"}"}`},
	} {
		if got := c.a.String(); got != c.want {
			t.Errorf("literal is %s, want %s", got, c.want)
		}
	}
}

func TestUUID_TextAndBinary_AreRead(t *testing.T) {
	id := uuid.MustParse("0193a3c5-0000-7000-8000-0123456789ab")
	if got := uuidText(id[:]); got != id.String() {
		t.Errorf("binary: %s", got)
	}
	if got := uuidText([]byte(id.String())); got != id.String() {
		t.Errorf("text: %s", got)
	}
}

// FuzzArraysRoundTrip checks that any text of a worker or platform is read from Postgres unchanged.
func FuzzArraysRoundTrip(f *testing.F) {
	for i, s := range nasty {
		f.Add(s, nasty[len(nasty)-1-i])
	}
	f.Add("\x00", "\xff")
	db, err := postgres.Open(f.Context(), postgres.Config{URL: pgtest.Database(f, nil), MaxOpen: 1})
	require.NoError(f, err)
	f.Cleanup(func() { _ = db.Close() })
	f.Fuzz(func(t *testing.T, a, b string) {
		a, b = clean(a), clean(b)
		if !utf8.ValidString(a) {
			t.Fatalf("clean returned invalid text %q", a)
		}
		var flat, nested array
		flat.text(a)
		flat.textOrNull(b)
		flat.null()
		nested.list([]string{a, b, a + b})
		var got, list textList
		var second, third *string
		row := db.QueryRowContext(t.Context(), `
SELECT ARRAY[v[1]], v[2], v[3], l.t::text[] FROM (SELECT $1::text[] AS v) f, unnest($2::text[]) AS l(t)`, &flat, &nested)
		require.NoErrorf(t, row.Scan(&got, &second, &third, &list), "%s, %s", &flat, &nested)
		if diff := cmp.Diff(textList{a}, got); diff != "" || third != nil || (second == nil) != (b == "") || second != nil && *second != b {
			t.Errorf("%s: second %v, third %v (-want +got):\n%s", &flat, second, third, diff)
		}
		if diff := cmp.Diff(textList{a, b, a + b}, list); diff != "" {
			t.Errorf("%s (-want +got):\n%s", &nested, diff)
		}
	})
}
