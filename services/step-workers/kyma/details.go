package kyma

// Details are the data that the worker saves about an instance.
type Details struct {
	// Version is the version of Kyma that the operation installs. An upgrade may fail before the Reconciler receives it; the worker
	// reconciler saves the version that the runtime has.
	Version string `json:"version"`
	// Origin is the source of the version, one of the Origin constants.
	Origin string `json:"origin"`
	// Components are the components of that version for the plan, in the order of installation: first the published ones, then those
	// of the operators. It is empty for Kyma 1.
	Components []Component `json:"components"`
}

// The origins of a version (docs/contracts/kyma-configuration.md#version).
const (
	// OriginParameters is an order or an upgrade with a version.
	OriginParameters = "parameters"
	// OriginMapping is the version of the subaccount or the global account.
	OriginMapping = "account-mapping"
	// OriginDefaults is the configured version.
	OriginDefaults = "defaults"
)
