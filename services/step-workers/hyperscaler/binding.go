package hyperscaler

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The labels of secret bindings (docs/contracts/gardener.md#account-pool).
const (
	labelType   = "hyperscalerType"
	labelTenant = "tenantName"
	labelShared = "shared"
	labelDirty  = "dirty"
	labelIntern = "internal"
	labelEU     = "euAccess"
)

// The annotations of secret bindings. Only this worker reads and writes them.
const (
	// annotationClaiming is the tenant of a claim that is not settled; the account is not in use yet. It is valid only while it equals the
	// binding's tenant.
	annotationClaiming = "keb.kyma-project.io/claiming"
	// annotationClaim, followed by an instance id, is the time of the instance's claim.
	annotationClaim = "claim.keb.kyma-project.io/"
)

// binding is a secret binding, which represents an account.
type binding struct{ unstructured.Unstructured }

func (b binding) tenant() string { return b.GetLabels()[labelTenant] }

// settled reports whether the tenant may use the account: its claim is no longer in dispute.
func (b binding) settled() bool { return b.GetAnnotations()[annotationClaiming] != b.tenant() }

// kept reports whether the account stays claimed without a user: it is internal, shared by trials, or waits for its cleaning.
func (b binding) kept() bool {
	labels := b.GetLabels()
	return labels[labelIntern] == "true" || labels[labelShared] == "true" || labels[labelDirty] != ""
}

func (b binding) deleting() bool { return b.GetDeletionTimestamp() != nil }

// secret returns the name of the secret with the account's credentials; empty if there is none.
func (b binding) secret() string {
	name, _, _ := unstructured.NestedString(b.Object, "secretRef", "name")
	return name
}

// claimedByOthers reports whether another instance has claimed the account since the given time.
func (b binding) claimedByOthers(instanceID string, since time.Time) bool {
	own := claimOf(instanceID)
	for name, value := range b.GetAnnotations() {
		if name == own || !strings.HasPrefix(name, annotationClaim) {
			continue
		}
		if at, err := time.Parse(time.RFC3339, value); err == nil && at.After(since) {
			return true
		}
	}
	return false
}

// claimOf returns the annotation of an instance.
func claimOf(instanceID string) string {
	if len(validation.IsQualifiedName(annotationClaim+instanceID)) > 0 {
		return fmt.Sprintf("%sx-%x", annotationClaim, sum(instanceID))
	}
	return annotationClaim + instanceID
}

// change is a merge patch of a binding.
type change struct {
	// version is the expected version of the binding; a changed binding is a conflict.
	version     string
	labels      map[string]any
	annotations map[string]any
}

// change returns a patch of b that removes the claims older than since.
func (b binding) change(since time.Time) change {
	c := change{labels: map[string]any{}, annotations: map[string]any{}}
	for name, value := range b.GetAnnotations() {
		if !strings.HasPrefix(name, annotationClaim) {
			continue
		}
		if at, err := time.Parse(time.RFC3339, value); err != nil || !at.After(since) {
			c.annotations[name] = nil
		}
	}
	return c
}

// ifUnchanged makes the patch conditional: it fails if b has changed in the meantime.
func (c change) ifUnchanged(b binding) change {
	c.version = b.GetResourceVersion()
	return c
}

// claimed adds the claim of an instance.
func (c change) claimed(instanceID string, at time.Time) change {
	c.annotations[claimOf(instanceID)] = at.UTC().Format(time.RFC3339)
	return c
}

// unclaimed removes the claims of all instances.
func (c change) unclaimed(b binding) change {
	for name := range b.GetAnnotations() {
		if name == annotationClaiming || strings.HasPrefix(name, annotationClaim) {
			c.annotations[name] = nil
		}
	}
	return c
}

func (c change) label(name string, value any) change {
	c.labels[name] = value
	return c
}

func (c change) annotation(name string, value any) change {
	c.annotations[name] = value
	return c
}

// body returns the patch.
func (c change) body() map[string]any {
	meta := map[string]any{}
	if c.version != "" {
		meta["resourceVersion"] = c.version
	}
	if len(c.labels) > 0 {
		meta["labels"] = c.labels
	}
	if len(c.annotations) > 0 {
		meta["annotations"] = c.annotations
	}
	return map[string]any{"metadata": meta}
}

func sum(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
