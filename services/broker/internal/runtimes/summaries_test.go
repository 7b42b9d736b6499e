package runtimes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

func TestSummarize_LongIDs_FitIntoOneMessage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u2028", 150) // its escape sequence is the longest
	var found []store.Summary
	for n := range 1001 {
		found = append(found, store.Summary{Instance: instance.Instance{
			ID: fmt.Sprintf("%04d", n), Context: event.Context{GlobalAccountID: long, SubaccountID: long},
		}, State: store.RuntimeSucceeded})
	}
	seen := 0
	for len(found) > 0 {
		page, err := summarize(found, 1000)
		require.NoError(t, err)
		raw, err := json.Marshal(page)
		if err != nil || len(raw) > 1<<20 {
			t.Fatalf("a page of %d bytes, %v", len(raw), err)
		}
		n := len(page.Instances)
		if n == 0 || (page.Next == "") != (n == len(found)) || (page.Next != "" && page.Next != page.Instances[n-1].InstanceID) {
			t.Fatalf("a page of %d out of %d with next %q", n, len(found), page.Next)
		}
		seen += n
		found = found[n:]
	}
	if seen != 1001 {
		t.Errorf("%d instances on all pages, want 1001", seen)
	}
}
