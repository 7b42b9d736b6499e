package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

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
	raw, err := json.Marshal(i)
	if err != nil {
		return "", fmt.Errorf("hash order: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}
