package limit

import "testing"

func FuzzParse(f *testing.F) {
	for _, text := range []string{document, "", "limits: [{name: a, commands: 1}]", "limits: &a [*a]", "weights: {a: .inf}", "? [a]: b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse([]byte(text))
		if err != nil {
			return
		}
		for i := range set.Limits {
			l := &set.Limits[i]
			if l.Name == "" || !l.BoundsCommands() && l.Operations < 1 {
				t.Errorf("%q: limit %+v is accepted", text, l)
			}
		}
	})
}
