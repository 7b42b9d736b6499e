package attack

import (
	"testing"
)

func TestAttacks_EveryRequest_IsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := &clients{}
	for _, attack := range []struct {
		name string
		run  func(*testing.T, *clients)
		// quick attacks are a part of make test.
		quick bool
	}{
		{name: "nothing is smuggled", run: w.nothingIsSmuggled, quick: true},
		{name: "pages of other sites cannot act", run: w.pagesOfOtherSitesCannotAct, quick: true},
		{name: "answers have security headers", run: w.answersHaveSecurityHeaders, quick: true},
		{name: "passwords cannot be tried", run: w.passwordsCannotBeTried, quick: true},
		{name: "access needs credentials", run: w.accessNeedsCredentials, quick: true},
		{name: "viewers cannot act", run: w.viewersCannotAct, quick: true},
		{name: "paths and methods lead nowhere else", run: w.pathsLeadNowhereElse, quick: true},
		{name: "odd bodies are refused", run: w.oddBodiesAreRefused},
		{name: "odd words break nothing", run: w.oddWordsBreakNothing},
		{name: "long headers are refused", run: w.longHeadersAreRefused, quick: true},
		{name: "odd contexts break nothing", run: w.oddContextsBreakNothing}, // last, because its orders continue
	} {
		t.Run(attack.name, func(t *testing.T) {
			if !attack.quick {
				thorough(t)
			}
			all := w.t
			w.t = t
			defer func() { w.t = all }()
			attack.run(t, c)
		})
	}
}
