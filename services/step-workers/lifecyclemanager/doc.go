// Package lifecyclemanager is the worker of the Lifecycle Manager: it creates the Kyma resource of a runtime in the control
// plane, and deletes it again (facts/keb.md 4.1, 4.2, 5.9).
package lifecyclemanager
