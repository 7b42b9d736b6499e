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
		// quick is a part of make test.
		quick bool
	}{
		{name: "nothing is smuggled", run: w.nothingIsSmuggled, quick: true},
		{name: "pages of other sites cannot act", run: w.pagesOfOtherSitesCannotAct, quick: true},
		{name: "browsers are told to be careful", run: w.browsersAreToldToBeCareful, quick: true},
		{name: "passwords cannot be tried", run: w.passwordsCannotBeTried, quick: true},
		{name: "nobody gets in without credentials", run: w.nobodyGetsIn},
		{name: "a viewer only looks", run: w.aViewerOnlyLooks},
		{name: "paths and methods lead nowhere else", run: w.pathsLeadNowhereElse},
		{name: "odd bodies are refused", run: w.oddBodiesAreRefused},
		{name: "odd words break nothing", run: w.oddWordsBreakNothing},
		{name: "long headers are refused", run: w.longHeadersAreRefused},
		{name: "odd contexts break nothing", run: w.oddContextsBreakNothing}, // last, for its orders go on
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
