package operand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NotReady is an object that is not ready.
type NotReady struct {
	Ref
	// Reason is the reason, for users.
	Reason string
}

// String returns the NotReady for users: "Deployment kyma-system/x: Available is False: ...".
func (n NotReady) String() string { return n.Ref.String() + ": " + n.Reason }

// Unready returns the objects of objs that are not ready, in their order, including those that are missing or being deleted. The errors are
// joined and contain the names of the objects that could not be read; the other objects are still checked.
func (o *Operand) Unready(ctx context.Context, objs []*unstructured.Unstructured) ([]NotReady, error) {
	var out []NotReady
	var errs []error
	for _, obj := range objs {
		ref := RefOf(obj)
		live, err := o.get(ctx, ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		reason := "does not exist"
		if live != nil {
			reason = unready(live)
		}
		if reason != "" {
			out = append(out, NotReady{ref, reason})
		}
	}
	return out, errors.Join(errs...)
}

// unready returns why an object is not ready, or "" if it is ready.
func unready(live *unstructured.Unstructured) string {
	if live.GetDeletionTimestamp() != nil {
		return deleting(live)
	}
	if RefOf(live).isCRD() && servesItsNames(live) {
		return ""
	}
	var reasons []string
	result, err := status.Compute(live)
	switch {
	case err != nil:
		reasons = append(reasons, fmt.Sprintf("its status cannot be read: %v", err))
	case result.Status != status.CurrentStatus:
		reasons = append(reasons, result.Message)
	}
	switch live.GroupVersionKind().Group + "/" + live.GetKind() {
	case "apps/Deployment":
		reasons = append(reasons, deploymentConditions(live)...)
	case "admissionregistration.k8s.io/MutatingWebhookConfiguration", "admissionregistration.k8s.io/ValidatingWebhookConfiguration":
		reasons = append(reasons, webhooksWithoutCA(live)...)
	}
	return strings.Join(reasons, "; ")
}

// servesItsNames reports whether a definition is established with its current names. NamesAccepted=False stays after a conflicting name is
// no longer requested, so that condition alone is not sufficient.
func servesItsNames(live *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	established := slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == "Established" && m["status"] == "True"
	})
	asked, _, _ := unstructured.NestedMap(live.Object, "spec", "names")
	accepted, _, _ := unstructured.NestedMap(live.Object, "status", "acceptedNames")
	return established && equality.Semantic.DeepEqual(asked, accepted)
}

func deleting(live client.Object) string {
	if f := live.GetFinalizers(); len(f) > 0 {
		return "is being deleted and waits for " + strings.Join(f, ", ")
	}
	return "is being deleted"
}

// deploymentConditions returns the conditions that keep a Deployment from being ready (docs/contracts/btp-manager.md#readiness). The
// condition ReplicaFailure contains the cause of the others, such as a quota.
func deploymentConditions(live *unstructured.Unstructured) []string {
	want := []struct{ kind, status string }{{"Available", "True"}, {"Progressing", "True"}, {"ReplicaFailure", ""}}
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	var out []string
	for _, w := range want {
		found := false
		for _, c := range conditions {
			m, _ := c.(map[string]any)
			field := func(name string) string { s, _, _ := unstructured.NestedString(m, name); return s }
			if field("type") != w.kind {
				continue
			}
			found = true
			if got := field("status"); got != w.status && (w.status != "" || got == "True") {
				out = append(out, fmt.Sprintf("%s is %s: %s: %s", w.kind, got, field("reason"), field("message")))
			}
		}
		if !found && w.status != "" {
			out = append(out, "has no condition "+w.kind)
		}
	}
	return out
}

// webhooksWithoutCA returns the webhooks of a configuration without a CA bundle, which the API server cannot call.
func webhooksWithoutCA(live *unstructured.Unstructured) []string {
	webhooks, _, _ := unstructured.NestedSlice(live.Object, "webhooks")
	var out []string
	for _, w := range webhooks {
		m, _ := w.(map[string]any)
		name, _, _ := unstructured.NestedString(m, "name")
		if bundle, _, _ := unstructured.NestedString(m, "clientConfig", "caBundle"); bundle == "" {
			out = append(out, fmt.Sprintf("webhook %s has no caBundle", name))
		}
	}
	return out
}
