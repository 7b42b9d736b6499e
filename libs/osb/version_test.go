package osb_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/osb"
)

// A larger identity does not fit into the headers of a message, and the order could not be published.
func TestParseOriginatingIdentity_TooLarge_IsRejected(t *testing.T) {
	t.Parallel()
	header := "cloudfoundry " + base64.StdEncoding.EncodeToString([]byte(`{"user_id":"`+strings.Repeat("x", 8<<10)+`"}`))
	if _, err := osb.ParseOriginatingIdentity(header); err == nil || err.Status != 400 || !strings.Contains(err.Description, "at most 8192") {
		t.Errorf("error %v, want 400 with the limit", err)
	}
}
