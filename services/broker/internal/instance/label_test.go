package instance_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/services/broker/internal/instance"
)

func TestCheckLabel_Invalid_NamesAllowedCharacters(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "0", "A-b_c.9", "0b25e9d7-9a57-4c8e-8a52-4b0d9f6b6f43", strings.Repeat("x", 63), "a--b"} {
		if err := instance.CheckLabel("instance_id", id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{
		"", "a/b c~d", strings.Repeat("x", 64), "ab:cd@ef", "-lead", "trail-", ".a", "a_", "ä", "a b", "a\n", "a\nb",
	} {
		err := instance.CheckLabel("instance_id", id)
		if err == nil || !strings.HasPrefix(err.Error(), "instance_id must be 1 to 63 characters of ") {
			t.Errorf("%q: error %v, want one that names the field and what is allowed", id, err)
		}
	}
}
