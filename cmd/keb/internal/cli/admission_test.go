package cli

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
)

func TestAdmissionOfUpIsThatOfTheOrchestrator(t *testing.T) {
	for text, want := range map[string]map[event.OperationType]int{
		"":                           {},
		"provision:500":              {event.Provision: 500},
		"provision:1, upgradeKyma:0": {event.Provision: 1, event.UpgradeKyma: 0},
	} {
		t.Setenv("KEB_ADMISSION", text)
		got, err := admissionFromEnv()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"provision", "provision:x", "provision:-1", "order:1", "500"} {
		t.Setenv("KEB_ADMISSION", text)
		_, err := admissionFromEnv()
		if _, ok := errors.AsType[*usage](err); !ok {
			t.Errorf("%q: error %v", text, err)
		}
	}
}
