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
	// restartedAt is how `kubectl rollout restart` makes a workload start its pods anew.
	restartedAt = ".template.metadata.annotations.kubectl.kubernetes.io/restartedAt"
	// revision and its like are how the controller of Deployments counts. Where one process is all of Kubernetes, as in k3s, it has
	// another name than kube-controller-manager.
	revision = ".metadata.annotations.deployment.kubernetes.io/"
)

// takeOver makes the fields that others set in an object ours. Server-side apply then takes away those the chart does not name;
// without this it would leave what others added (docs/contracts/btp-manager.md#operand).
func (o *Operand) takeOver(ctx context.Context, live *unstructured.Unstructured) error {
	entries, changed, err := takenOver(live.GetManagedFields(), o.cfg.FieldOwner, live.GetAPIVersion())
	if err != nil {
		return fmt.Errorf("take the fields of other managers over: %w", err)
	}
	if !changed {
		return nil
	}
	// The resource version makes the API server refuse the patch when somebody has written since.
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
	if err := o.client.Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(o.cfg.FieldOwner)); err != nil {
		return fmt.Errorf("take the fields of other managers over: %w", err)
	}
	return nil
}

// takenOver moves the fields of other managers into the one entry that owner has for what it applies. It answers false when
// there are none to move. Fields set through another version of the API count by their path: one that has another path there
// is not found (no kind of the chart is served in two versions).
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

// theirs is what another manager keeps of its fields: all when it is a part of Kubernetes that looks after the object, or
// writes its status. From everybody else only what is no statement about the chart: a finalizer, whose owner has something to
// clean up before the object goes, the mark of a rollout restart, and the count of a Deployment's revisions.
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
			// The map that holds it is left to them as well: taking it would take the mark away.
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

// immutable tells that the API server refused a change only because fields cannot be changed. An object that is invalid in any
// other way as well must not be deleted for it: it could not be created again.
func immutable(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Reason != metav1.StatusReasonInvalid || status.ErrStatus.Details == nil {
		return false
	}
	causes := status.ErrStatus.Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool { return !saysImmutable(c.Message) })
}

// saysImmutable knows the ways in which the API server's validation says so; there is no code for it.
func saysImmutable(message string) bool {
	return slices.ContainsFunc([]string{
		"immutable", "cannot change", "can not be changed", "cannot be changed", "may not change", "may not be changed",
		"can not be unset", "may not be unset", "may not be updated", "updates to statefulset spec",
	}, func(s string) bool { return strings.Contains(strings.ToLower(message), s) })
}
