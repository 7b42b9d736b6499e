package osb_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit/openapi"
)

func TestOpenAPI_Routes_MatchTheDocument(t *testing.T) {
	t.Parallel()
	document, err := openapi.Read("../../api/osb.yaml")
	require.NoError(t, err)
	if diff := cmp.Diff(document.Routes(), slices.Sorted(slices.Values(osb.Routes()))); diff != "" {
		t.Errorf("routes (-document +code):\n%s", diff)
	}
	if diff := cmp.Diff(document.Prefixes(), osb.Prefixes()); diff != "" {
		t.Errorf("prefixes (-document +code):\n%s", diff)
	}
}
