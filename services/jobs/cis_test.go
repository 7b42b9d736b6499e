package jobs

import "testing"

func FuzzSubaccountOf(f *testing.F) {
	for _, seed := range []string{`{"subaccountGuid":"a"}`, `"{\\"subaccountGuid\\":\\"a\\"}"`, `""`, `null`, `[`, `"\\u0000"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if id, err := subaccountOf(raw); err != nil && id != "" {
			t.Errorf("%q gives the id %q and the error %v", raw, id, err)
		}
	})
}
