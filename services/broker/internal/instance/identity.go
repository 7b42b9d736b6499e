package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
)

// Identity holds the data that makes two orders equal (docs/contracts/osb.md#decisions). It has no display fields.
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

// Hash returns equal values exactly for equivalent identities. The order of members, white space and the notation of numbers do
// not matter. It fails if Parameters is not JSON.
func (i Identity) Hash() (string, error) {
	var err error
	if i.Parameters, err = osb.Canonical(i.Parameters); err != nil {
		return "", fmt.Errorf("hash order: %w", err)
	}
	return hash(i)
}

// UpdateIdentity holds the data that makes two updates of an instance equal: the instance after the update.
type UpdateIdentity struct {
	Plan               event.Plan                 `json:"plan"`
	Context            event.Context              `json:"context"`
	Sent               json.RawMessage            `json:"sent"`
	Effective          json.RawMessage            `json:"effective"`
	MaintenanceVersion string                     `json:"maintenanceVersion"`
	Credentials        map[string]json.RawMessage `json:"credentials"`
}

// Hash returns equal values exactly for equivalent updates of one instance. It fails if a member is not JSON.
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
