package hyperscaler

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels of secret bindings (docs/contracts/gardener.md#account-pool).
const (
	labelType   = "hyperscalerType"
	labelTenant = "tenantName"
	labelShared = "shared"
	labelDirty  = "dirty"
	labelIntern = "internal"
	labelEU     = "euAccess"
)

// Annotations of secret bindings, which only this worker reads and writes.
const (
	// annotationClaiming names the tenant of a claim that is not settled yet: nobody uses the account so far. It counts only
	// while the binding's tenant is the same.
	annotationClaiming = "keb.kyma-project.io/claiming"
	// annotationClaim, with an instance behind it, is when the instance claimed the account.
	annotationClaim = "claim.keb.kyma-project.io/"
)

// binding is a secret binding, which stands for an account.
type binding struct{ unstructured.Unstructured }

func (b binding) tenant() string { return b.GetLabels()[labelTenant] }

// settled tells that the tenant may use the account: its claim is no longer in dispute.
func (b binding) settled() bool { return b.GetAnnotations()[annotationClaiming] != b.tenant() }

// kept reports whether the account stays claimed whatever uses it: it is internal, shared by trials, or waits for its cleaning.
func (b binding) kept() bool {
	labels := b.GetLabels()
	return labels[labelIntern] == "true" || labels[labelShared] == "true" || labels[labelDirty] != ""
}

func (b binding) deleting() bool { return b.GetDeletionTimestamp() != nil }

// secret is the name of the secret with the account's credentials; empty if there is none.
func (b binding) secret() string {
	name, _, _ := unstructured.NestedString(b.Object, "secretRef", "name")
	return name
}

// claimedByOthers tells whether an instance other than the given one has claimed the account since the given time.
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

// claimOf names the annotation of an instance.
func claimOf(instanceID string) string {
	if len(validation.IsQualifiedName(annotationClaim+instanceID)) > 0 {
		return fmt.Sprintf("%sx-%x", annotationClaim, sum(instanceID))
	}
	return annotationClaim + instanceID
}

// change is a merge patch of a binding.
type change struct {
	// version makes it a conflict when the binding has changed since.
	version     string
	labels      map[string]any
	annotations map[string]any
}

// change begins a patch of b that takes the claims away which are older than since.
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

// ifUnchanged lets c count only if nobody has changed b meanwhile.
func (c change) ifUnchanged(b binding) change {
	c.version = b.GetResourceVersion()
	return c
}

// claimed notes that an instance claims the account.
func (c change) claimed(instanceID string, at time.Time) change {
	c.annotations[claimOf(instanceID)] = at.UTC().Format(time.RFC3339)
	return c
}

// unclaimed takes the note of b about every instance away.
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

// body is the patch.
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
