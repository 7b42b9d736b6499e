package instance

import (
	"fmt"
	"regexp"
)

// label is what Kubernetes takes as the value of a label.
var label = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

// CheckLabel refuses an id that cannot be the value of a Kubernetes label: the Kyma resource and the cluster have the ids of an instance
// as labels, and would fail after the cluster was built. The error is for the platform.
func CheckLabel(name, id string) error {
	if label.MatchString(id) {
		return nil
	}
	return fmt.Errorf("%s must be 1 to 63 characters of A-Z, a-z, 0-9, '-', '_' and '.', and begin and end with a letter or a digit: "+
		"it becomes a Kubernetes label", name)
}
