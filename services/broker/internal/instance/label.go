package instance

import (
	"fmt"
	"regexp"
)

// label matches the valid values of a Kubernetes label.
var label = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// CheckLabel rejects an id that is not a valid Kubernetes label value. The ids of an instance become labels of the Kyma resource and
// of the cluster, so an invalid one would fail only after the cluster exists. The error is for the platform.
func CheckLabel(name, id string) error {
	if label.MatchString(id) {
		return nil
	}
	return fmt.Errorf("%s must be 1 to 63 characters of A-Z, a-z, 0-9, '-', '_' and '.', and begin and end with a letter or a digit: "+
		"it becomes a Kubernetes label", name)
}
