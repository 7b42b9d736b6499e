package kubernetes

import "testing"

func FuzzSelectorNeverPanics(f *testing.F) {
	for _, s := range []string{"", "a=b", "a==b,c!=d", "a in (b,c),!d", "a notin (b)", "a in (b", ")(", "a in b)", "!", "=", ",,"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		reqs, err := parseSelector(s)
		if err == nil {
			matches(reqs, map[string]string{"a": "b"})
		}
	})
}

func TestSelectorTerms(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"a": "1", "b": "2"}
	for selector, want := range map[string]bool{
		"": true, "a=1": true, "a==1": true, "a=2": false, "a!=1": false, "a!=2": true, "c!=1": true, "a": true, "c": false, "!a": false, "!c": true,
		"a in (1,2)": true, "a in (2)": false, "c in (1)": false, "a notin (2)": true, "a notin (1)": false, "c notin (1)": true,
		"a=1,b=2": true, "a=1, b=3": false, "a in (1,3),b in (2,4)": true, " a = 1 ": true,
	} {
		reqs, err := parseSelector(selector)
		if err != nil {
			t.Errorf("%q: %v", selector, err)
			continue
		}
		if got := matches(reqs, labels); got != want {
			t.Errorf("%q is %v, want %v", selector, got, want)
		}
	}
	for _, selector := range []string{"a in (1", "a in 1)", "a b", "=1", "!", "a in (1)b", ",a"} {
		if _, err := parseSelector(selector); err == nil {
			t.Errorf("%q is accepted", selector)
		}
	}
}
