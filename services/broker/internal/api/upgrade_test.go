package api

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
)

// Any request is either rejected with a reason, or contains operations with canonical ids.
func FuzzCheckUpgrades(f *testing.F) {
	const id = "0193a3c5-8a3c-7a5e-9d5a-0d0e5a4b1e00"
	f.Add([]byte(`{"upgrades":[{"operationId":"` + id + `","instanceId":"i","type":"upgradeKyma","upgrade":{"orchestrationId":"` + id + `"}}]}`))
	f.Add([]byte(`{"upgrades":[{"operationId":"{` + id + `}","instanceId":"\u0000","type":"provision","upgrade":{}}]}`))
	f.Add([]byte(`{"upgrades":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var q event.UpgradeRequest
		if json.Unmarshal(data, &q) != nil {
			return
		}
		if err := checkUpgrades(q.Upgrades); err != nil {
			if err.Error() == "" {
				t.Error("refused without a reason")
			}
			return
		}
		seen := make(map[string]bool)
		for _, o := range q.Upgrades {
			if parsed, err := uuid.Parse(o.OperationID); err != nil || parsed.String() != o.OperationID || seen[o.OperationID] {
				t.Errorf("operation id %q is taken", o.OperationID)
			}
			seen[o.OperationID] = true
			if o.InstanceID == "" {
				t.Error("no instance is named")
			}
		}
	})
}
