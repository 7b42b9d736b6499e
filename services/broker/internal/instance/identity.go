package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
)

// Identity is what decides whether two orders are the same (facts/osb.md section 3): display fields are not in it.
type Identity struct {
	ServiceID       string          `json:"service"`
	PlanID          string          `json:"plan"`
	Parameters      json.RawMessage `json:"parameters"`
	Organization    string          `json:"organization"`
	Space           string          `json:"space"`
	GlobalAccountID string          `json:"globalAccount"`
	SubaccountID    string          `json:"subaccount"`
	PlatformRegion  string          `json:"platformRegion"`
}

// Hash is equal for two identities exactly when they mean the same: order of members, white space and the way numbers
// are written do not count. It fails when Parameters is not JSON.
func (i Identity) Hash() (string, error) {
	var err error
	if i.Parameters, err = osb.Canonical(i.Parameters); err != nil {
		return "", fmt.Errorf("hash order: %w", err)
	}
	return hash(i)
}

// UpdateIdentity is what decides whether two updates of an instance are the same: what they make of it.
type UpdateIdentity struct {
	Plan               event.Plan                 `json:"plan"`
	Context            event.Context              `json:"context"`
	Sent               json.RawMessage            `json:"sent"`
	Effective          json.RawMessage            `json:"effective"`
	MaintenanceVersion string                     `json:"maintenanceVersion"`
	Credentials        map[string]json.RawMessage `json:"credentials"`
}

// Hash is equal for two updates of one instance exactly when they mean the same. It fails when something is not JSON.
func (u UpdateIdentity) Hash() (string, error) {
	raw, err := json.Marshal(u)
	if err != nil {
		return "", fmt.Errorf("hash update: %w", err)
	}
	if raw, err = osb.Canonical(raw); err != nil {
		return "", fmt.Errorf("hash update: %w", err)
	}
	return hash(json.RawMessage(raw))
}

func hash(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("hash: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}
