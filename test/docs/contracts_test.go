package docs_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/kyma-project/keb/libs/osb/osbtest"
)

func TestRulesOfTheServiceBroker_MatchTheSuite(t *testing.T) {
	t.Parallel()
	var listed, checked []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d\d) \|`).FindAllStringSubmatch(read(t, "docs/contracts/osb.md"), -1) {
		listed = append(listed, m[1])
	}
	for _, c := range osbtest.Cases() {
		checked = append(checked, c.ID)
	}
	slices.Sort(listed)
	slices.Sort(checked)
	if !slices.Equal(listed, checked) {
		t.Errorf("docs/contracts/osb.md and osbtest differ:\n%v\n%v", listed, checked)
	}
}
