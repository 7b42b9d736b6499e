package operand

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// phase is a phase of the removal. A phase begins when all objects of the previous one are gone.
type phase int

const (
	// workloads includes the webhooks: without a workload, a webhook rejects everything.
	workloads phase = iota
	others
	// credentials are removed late, because the rest of the operand may need them (docs/contracts/btp-manager.md#credentials-and-cluster-id).
	credentials
	definitions
	phases
)

func (r Ref) phase() phase {
	switch {
	case r.isCRD():
		return definitions
	case r.Group == "" && r.Kind == "Secret":
		return credentials
	case r.Group == "apps", r.Group == "batch", r.Group == "" && r.Kind == "Pod", r.Group == "admissionregistration.k8s.io":
		return workloads
	}
	return others
}

// prune deletes the objects of an earlier chart. It returns those that still exist, which must stay in the inventory. applied are the
// objects of the current chart: an object that is served under two API groups is not obsolete under the old one.
func (o *Operand) prune(ctx context.Context, obsolete []Ref, applied map[types.UID]bool, done *Applied) ([]Ref, error) {
	var remaining []Ref
	var errs []error
	slices.SortStableFunc(obsolete, byPhase)
	for _, ref := range without(obsolete, o.own()) {
		there, err := o.pruneOne(ctx, ref, applied, done)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove the obsolete %s: %w", ref, err))
		}
		if there {
			remaining = append(remaining, ref)
		}
	}
	return remaining, errors.Join(errs...)
}

// pruneOne reports whether the object must stay in the inventory.
func (o *Operand) pruneOne(ctx context.Context, ref Ref, applied map[types.UID]bool, done *Applied) (bool, error) {
	live, err := o.getMeta(ctx, ref)
	if err != nil || live == nil {
		return err != nil, err
	}
	if applied[live.UID] || !ours(live) {
		log.FromContext(ctx).Info("keeping an object that belongs to the chart, or is not ours", "object", ref.String())
		return false, nil
	}
	if live.DeletionTimestamp != nil {
		return true, nil
	}
	if err := o.unused(ctx, ref); err != nil {
		if inUse, ok := errors.AsType[*InUseError](err); ok {
			done.Kept = append(done.Kept, inUse)
			return true, nil
		}
		return true, err
	}
	if err := o.delete(ctx, ref, live); err != nil {
		return true, err
	}
	done.Removed = append(done.Removed, ref)
	live, err = o.getMeta(ctx, ref)
	return err != nil || live != nil, err
}

// Remove removes the objects of the chart, of the inventory and of BTP Manager: the workloads and webhooks, then the rest, then Secrets,
// then CustomResourceDefinitions, and finally the inventory. It also removes other objects of known kinds with our label. It removes no
// object without our label, except what the operand creates. keep selects objects that stay; it may be nil.
//
// It returns the existing objects, starting with those that it waits for and their reasons: call it again until the result is empty. While
// custom resources of a definition exist, it removes nothing and returns an *InUseError for each definition.
func (o *Operand) Remove(ctx context.Context, objs []*unstructured.Unstructured, keep func(Ref) bool) (left []NotReady, err error) {
	inv, err := o.inventory(ctx, objs)
	if err != nil {
		return nil, err
	}
	known, strayed := union(refs(objs), inv.refs), []Ref(nil)
	if inv.lost {
		if strayed, err = o.strayed(ctx, known); err != nil {
			return nil, fmt.Errorf("find what to remove: %w", err)
		}
	}
	targets, err := o.targets(ctx, known, strayed, keep)
	if err != nil {
		return nil, fmt.Errorf("find what to remove: %w", err)
	}
	for _, t := range targets {
		left = append(left, NotReady{t.ref, "its turn comes later"})
	}
	var inUse []error
	for _, t := range targets {
		inUse = append(inUse, o.unused(ctx, t.ref))
	}
	if err := errors.Join(inUse...); err != nil {
		return left, err
	}
	for p := range phases {
		rest, err := o.removePhase(ctx, targets, p)
		later := slices.DeleteFunc(slices.Clone(left), func(n NotReady) bool { return n.phase() <= p })
		if err != nil || len(rest) > 0 {
			return append(rest, later...), err
		}
		left = later
	}
	if inv.stored == nil {
		return nil, nil
	}
	ref := Ref{Version: "v1", Kind: "ConfigMap", Namespace: o.cfg.Namespace, Name: InventoryName}
	return nil, o.delete(ctx, ref, inv.stored)
}

// target is an existing object to remove.
type target struct {
	ref  Ref
	live *metav1.PartialObjectMetadata
}

// targets returns the existing objects of known, of strayed and of our own, and those that labelled finds, in the order of removal.
func (o *Operand) targets(ctx context.Context, known, strayed []Ref, keep func(Ref) bool) ([]target, error) {
	found, err := o.labelled(ctx, known)
	if err != nil {
		return nil, err
	}
	// The definition of the BtpOperator belongs to BTP Manager, whatever its labels.
	found = slices.DeleteFunc(found, func(r Ref) bool {
		return r.isCRD() && strings.HasSuffix(r.Name, "."+v1alpha1.GroupVersion().Group)
	})
	known = union(known, strayed)
	products := o.products(known)
	all := union(union(union(known, o.own()), products), found)
	slices.SortStableFunc(all, byPhase)
	var out []target
	for _, ref := range all {
		if keep != nil && keep(ref) {
			continue
		}
		live, err := o.getMeta(ctx, ref)
		if err != nil {
			return nil, err
		}
		if live == nil || !ours(live) && !slices.Contains(products, ref) {
			continue
		}
		out = append(out, target{ref, live})
	}
	return out, nil
}

// products returns the operand's product, and objects with its name in other namespaces that contain objects of the chart: the operand creates
// it beside its credentials.
func (o *Operand) products(known []Ref) []Ref {
	p := o.product()
	out := []Ref{p}
	for _, ref := range known {
		if p.Namespace = ref.Namespace; p.Namespace != "" {
			out = union(out, []Ref{p})
		}
	}
	return out
}

// removePhase deletes the targets of one phase and returns those that still exist.
func (o *Operand) removePhase(ctx context.Context, targets []target, p phase) ([]NotReady, error) {
	var rest []NotReady
	var errs []error
	for _, t := range targets {
		if t.ref.phase() != p {
			continue
		}
		var err error
		if t.live.DeletionTimestamp == nil {
			// Check again directly before: a custom resource may have been created since.
			if err = o.unused(ctx, t.ref); err == nil {
				err = o.delete(ctx, t.ref, t.live)
			}
		}
		live, getErr := o.getMeta(ctx, t.ref)
		if err = errors.Join(err, getErr); err != nil {
			errs = append(errs, err)
		}
		switch {
		case err != nil:
			rest = append(rest, NotReady{t.ref, err.Error()})
		case live != nil:
			rest = append(rest, NotReady{t.ref, deleting(live)})
		}
	}
	return rest, errors.Join(errs...)
}

// RemoveWorkload deletes the operand's Deployment and its two webhook configurations, so that neither interferes with the removal of
// finalizers from service instances and bindings (docs/contracts/btp-manager.md#deprovisioning). It ignores missing ones and those
// without our label.
func (o *Operand) RemoveWorkload(ctx context.Context) error {
	const admission = "admissionregistration.k8s.io"
	var errs []error
	for _, ref := range []Ref{
		{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: o.cfg.Namespace, Name: deployment},
		{Group: admission, Version: "v1", Kind: "MutatingWebhookConfiguration", Name: mutatingWebhook},
		{Group: admission, Version: "v1", Kind: "ValidatingWebhookConfiguration", Name: validatingWebhook},
	} {
		live, err := o.getMeta(ctx, ref)
		if err == nil && live != nil && ours(live) {
			err = o.delete(ctx, ref, live)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func byPhase(a, b Ref) int { return cmp.Compare(a.phase(), b.phase()) }
