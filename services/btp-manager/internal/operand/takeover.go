package operand

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const (
	// restartedAt is the annotation with which `kubectl rollout restart` restarts the pods of a workload.
	restartedAt = ".template.metadata.annotations.kubectl.kubernetes.io/restartedAt"
	// revision is the prefix of the Deployment controller's counters. In a single-process Kubernetes such as k3s, that controller has another
	// name than kube-controller-manager.
	revision = ".metadata.annotations.deployment.kubernetes.io/"
)

// takeOver makes us the owner of fields that other clients set in an object. Server-side apply then removes those that the chart does not
// contain; otherwise it would keep additions of other clients (docs/contracts/btp-manager.md#operand).
func (o *Operand) takeOver(ctx context.Context, live *unstructured.Unstructured) error {
	entries, changed, err := takenOver(live.GetManagedFields(), fieldOwner, live.GetAPIVersion())
	if err != nil {
		return fmt.Errorf("take the fields of other managers over: %w", err)
	}
	if !changed {
		return nil
	}
	// The resource version makes the API server reject the patch if the object has changed since.
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return fmt.Errorf("take the fields of other managers over: %w", err)
	}
	target := new(unstructured.Unstructured)
	target.SetGroupVersionKind(live.GroupVersionKind())
	target.SetNamespace(live.GetNamespace())
	target.SetName(live.GetName())
	if err := o.client.Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("take the fields of other managers over: %w", err)
	}
	return nil
}

// takenOver moves the fields of other managers into the entry of owner. It returns false if there are none to move. Fields that were set in
// another version of the API are matched by their path; a field with another path there is not found (no kind of the chart is served in
// two versions).
func takenOver(entries []metav1.ManagedFieldsEntry, owner, apiVersion string) ([]metav1.ManagedFieldsEntry, bool, error) {
	own := metav1.ManagedFieldsEntry{
		Manager: owner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, FieldsType: "FieldsV1",
	}
	fields := fieldpath.NewSet()
	var rest []metav1.ManagedFieldsEntry
	changed := false
	for _, e := range entries {
		set, err := fieldsOf(e)
		if err != nil {
			return nil, false, fmt.Errorf("fields of %s: %w", e.Manager, err)
		}
		if e.Manager == owner && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" {
			own, fields = e, fields.Union(set)
			continue
		}
		left := theirs(e, set)
		taken := set.Difference(left)
		if taken.Empty() {
			rest = append(rest, e)
			continue
		}
		changed = true
		fields = fields.Union(taken)
		if own.Time == nil {
			own.Time = e.Time
		}
		if !left.Empty() {
			if e.FieldsV1, err = fieldsV1(left); err != nil {
				return nil, false, err
			}
			rest = append(rest, e)
		}
	}
	if !changed {
		return entries, false, nil
	}
	var err error
	if own.FieldsV1, err = fieldsV1(fields); err != nil {
		return nil, false, err
	}
	return append([]metav1.ManagedFieldsEntry{own}, rest...), true, nil
}

// theirs returns the fields that another manager keeps: all of them if it is a part of Kubernetes that manages the object or writes its
// status. Every other manager keeps only fields that are unrelated to the chart: finalizers, whose owner must clean up first, the
// annotation of a rollout restart, and the revision counter of a Deployment.
func theirs(e metav1.ManagedFieldsEntry, set *fieldpath.Set) *fieldpath.Set {
	if e.Subresource == "status" || e.Subresource == "" && slices.Contains([]string{"kube-controller-manager", "kube-apiserver"}, e.Manager) {
		return set
	}
	left := fieldpath.NewSet()
	for path := range set.All() {
		name := path.String()
		switch {
		case strings.HasPrefix(name, ".status"), strings.HasPrefix(name, ".metadata.finalizers"):
			left.Insert(path.Copy())
		case strings.HasSuffix(name, restartedAt), strings.HasPrefix(name, revision):
			left.Insert(path.Copy())
			// They keep the containing map, too: taking it would remove the annotation.
			if parent := path[:len(path)-1]; set.Has(parent) {
				left.Insert(parent.Copy())
			}
		}
	}
	return left
}

func fieldsOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if e.FieldsV1 == nil {
		return set, nil
	}
	return set, set.FromJSON(bytes.NewReader(e.FieldsV1.GetRawBytes()))
}

func fieldsV1(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("write managed fields: %w", err)
	}
	f := new(metav1.FieldsV1)
	f.SetRawBytes(raw)
	return f, nil
}

// immutable reports whether the API server rejected a change only because of immutable fields. An object that is also invalid for another
// reason must not be deleted, because it could not be created again.
func immutable(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Reason != metav1.StatusReasonInvalid || status.ErrStatus.Details == nil {
		return false
	}
	causes := status.ErrStatus.Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool { return !isImmutableMessage(c.Message) })
}

// isImmutableMessage recognizes the messages of the API server's validation, which has no code for it.
func isImmutableMessage(message string) bool {
	return slices.ContainsFunc([]string{
		"immutable", "cannot change", "can not be changed", "cannot be changed", "may not change", "may not be changed",
		"can not be unset", "may not be unset", "may not be updated", "updates to statefulset spec",
	}, func(s string) bool { return strings.Contains(strings.ToLower(message), s) })
}
