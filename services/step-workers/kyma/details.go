package kyma

// Details is what the worker saves about an instance.
type Details struct {
	// Version is the version of Kyma that the operation installs.
	Version string `json:"version"`
	// Origin says where the version comes from.
	Origin string `json:"origin"`
}
