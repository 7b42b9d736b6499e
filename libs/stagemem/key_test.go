package stagemem

import (
	"regexp"
	"testing"
)

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"a", "overrides.avs", "a b", "=", "=41", "ä/*>", "\x00\xff", "."} {
		f.Add(s)
	}
	token := regexp.MustCompile(`^[A-Za-z0-9_=-]*$`)
	f.Fuzz(func(t *testing.T, s string) {
		e := encode(s)
		if !token.MatchString(e) || e == marker {
			t.Errorf("%q is encoded as %q", s, e)
		}
		if got, err := decode(e); err != nil || got != s {
			t.Errorf("%q comes back as %q, %v", s, got, err)
		}
	})
}

func TestDecode_InvalidEscape_IsRejected(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"=", "a=4", "=XY"} {
		if got, err := decode(s); err == nil {
			t.Errorf("%q is decoded as %q", s, got)
		}
	}
}
