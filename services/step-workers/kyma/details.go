package kyma

// Details is what the worker saves about an instance.
type Details struct {
	// Version is the version of Kyma that the operation installs. What the runtime really has is what the worker reconciler
	// saves when it has told the Reconciler: an upgrade may fail before that.
	Version string `json:"version"`
	// Origin says where the version comes from, one of the Origin constants.
	Origin string `json:"origin"`
	// Components are the parts of that version for the plan, in the order in which they are installed: those that are published
	// with it, then those that operators add. Kyma 1 has none here.
	Components []Component `json:"components"`
}

// Where a version comes from (docs/contracts/kyma-configuration.md#version).
const (
	// OriginParameters is an order or an upgrade that names its version.
	OriginParameters = "parameters"
	// OriginMapping is the version of the subaccount or the global account.
	OriginMapping = "account-mapping"
	// OriginDefaults is the configured version.
	OriginDefaults = "defaults"
)
