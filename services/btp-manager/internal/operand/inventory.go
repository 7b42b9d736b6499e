package operand

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

const (
	// InventoryName is the name of the ConfigMap with the list of applied objects, in the namespace of the chart.
	InventoryName = "btp-manager-inventory"
	// inventoryKey contains one object per line: its apiVersion, its kind, and its name prefixed with the namespace.
	inventoryKey = "objects"
	// checksumKey contains the SHA-256 of these lines, in hex, which detects changed or truncated lines.
	checksumKey = "sha256"
)

// inventory lists the objects that were applied before, as far as they are known.
type inventory struct {
	// stored is nil if the ConfigMap does not exist.
	stored *corev1.ConfigMap
	refs   []Ref
	// lost means that the list may be incomplete, because the ConfigMap is missing or was changed.
	lost bool
}

// inventory reads the ConfigMap. It completes a missing or changed one with the objects that have the labels of the chart and a kind of
// objs, of the readable lines or of Kinds. Otherwise an obsolete object would stay forever.
func (o *Operand) inventory(ctx context.Context, objs []*unstructured.Unstructured) (*inventory, error) {
	inv := new(inventory)
	cm := new(corev1.ConfigMap)
	switch err := o.client.Get(ctx, client.ObjectKey{Namespace: o.cfg.Namespace, Name: InventoryName}, cm); {
	case err == nil:
		inv.stored = cm
	case !gone(err):
		return nil, fmt.Errorf("read the inventory: %w", err)
	}
	lines, bad := []string(nil), inv.stored == nil
	if inv.stored != nil {
		text := cm.Data[inventoryKey]
		lines, bad = strings.Split(strings.TrimSuffix(text, "\n"), "\n"), cm.Data[checksumKey] != checksum(text)
	}
	for _, line := range lines {
		if line == "" {
			continue
		}
		ref, ok := parseLine(line)
		if !ok {
			bad = true
			continue
		}
		ref, err := o.served(ref)
		if err != nil {
			return nil, err
		}
		inv.refs = append(inv.refs, ref)
	}
	if !bad {
		return inv, nil
	}
	inv.lost = true
	if inv.stored != nil {
		log.FromContext(ctx).Info("the inventory was changed, completing it from labels", "config_map", o.cfg.Namespace+"/"+InventoryName)
	}
	found, err := o.labelled(ctx, union(refs(objs), inv.refs), client.HasLabels{render.ChartVersionLabel})
	if err != nil {
		return nil, fmt.Errorf("rebuild the inventory: %w", err)
	}
	inv.refs = union(inv.refs, without(found, o.own()))
	return inv, nil
}

// served returns ref in a version that the cluster serves: an upgrade of the cluster may have removed the stored version.
func (o *Operand) served(ref Ref) (Ref, error) {
	mapper, kind := o.client.RESTMapper(), ref.GroupVersionKind().GroupKind()
	_, err := mapper.RESTMapping(kind, ref.Version)
	if meta.IsNoMatchError(err) {
		var other *meta.RESTMapping
		if other, err = mapper.RESTMapping(kind); err == nil {
			ref.Version = other.GroupVersionKind.Version
		}
	}
	if err != nil && !meta.IsNoMatchError(err) {
		return Ref{}, fmt.Errorf("look up %s: %w", kind, err)
	}
	return ref, nil
}

// store writes the inventory if it has changed, with the labels of the chart's objects.
func (o *Operand) store(ctx context.Context, inv *inventory, refs []Ref, objs []*unstructured.Unstructured) error {
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.cfg.Namespace, Name: InventoryName}}
	if inv.stored != nil {
		want = inv.stored.DeepCopy()
	}
	text := lines(refs)
	want.Data = map[string]string{inventoryKey: text, checksumKey: checksum(text)}
	want.BinaryData = nil
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	want.Labels[render.ManagedByLabel] = render.ManagedBy
	if len(objs) > 0 {
		for _, key := range []string{render.ChartVersionLabel, render.ModuleLabel} {
			if v := objs[0].GetLabels()[key]; v != "" {
				want.Labels[key] = v
			}
		}
	}
	var err error
	if inv.stored == nil {
		err = o.client.Create(ctx, want, client.FieldOwner(fieldOwner))
	} else if !maps.Equal(want.Data, inv.stored.Data) || !maps.Equal(want.Labels, inv.stored.Labels) {
		err = o.client.Update(ctx, want, client.FieldOwner(fieldOwner))
	}
	if err != nil {
		return fmt.Errorf("store the inventory: %w", err)
	}
	inv.stored = want
	return nil
}

// lines formats refs in sorted order, so that the same objects give the same text.
func lines(refs []Ref) string {
	out := make([]string, 0, len(refs))
	for _, r := range refs {
		name := r.Name
		if r.Namespace != "" {
			name = r.Namespace + "/" + r.Name
		}
		out = append(out, fmt.Sprintf("%s %s %s\n", schema.GroupVersion{Group: r.Group, Version: r.Version}, r.Kind, name))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func checksum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func parseLine(line string) (Ref, bool) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return Ref{}, false
	}
	gv, err := schema.ParseGroupVersion(f[0])
	if err != nil || gv.Version == "" {
		return Ref{}, false
	}
	r := Ref{Group: gv.Group, Version: gv.Version, Kind: f[1], Name: f[2]}
	if ns, name, ok := strings.Cut(f[2], "/"); ok {
		r.Namespace, r.Name = ns, name
	}
	// An invalid name would cause an error in every call.
	valid := func(s string) bool { return len(content.IsPathSegmentName(s)) == 0 }
	return r, r.Name != "" && valid(r.Name) && valid(r.Namespace)
}

// Kinds returns the kinds of objects in all versions of the operand's chart (docs/contracts/btp-manager.md#operand). Objects of these kinds with
// our label are found without an inventory; BTP Manager needs the right to list them.
func Kinds() []schema.GroupVersionKind {
	const (
		rbac      = "rbac.authorization.k8s.io"
		admission = "admissionregistration.k8s.io"
	)
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: rbac, Version: "v1", Kind: "Role"},
		{Group: rbac, Version: "v1", Kind: "RoleBinding"},
		{Group: rbac, Version: "v1", Kind: "ClusterRole"},
		{Group: rbac, Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: admission, Version: "v1", Kind: "MutatingWebhookConfiguration"},
		{Group: admission, Version: "v1", Kind: "ValidatingWebhookConfiguration"},
		{Group: crdGroup, Version: "v1", Kind: crdKind},
	}
}

// labelled lists the objects with our label, and opts, of the kinds in Kinds and in known: namespaced kinds in the chart's namespace, and in each
// namespace where known has an object of the kind, because BTP Manager may list only Secrets elsewhere. The result omits known, the inventory, and
// cluster-scoped objects that BTP Manager may not read: it has rights only for the names of the operand's charts.
func (o *Operand) labelled(ctx context.Context, known []Ref, opts ...client.ListOption) ([]Ref, error) {
	kinds := map[schema.GroupKind]string{}
	for _, k := range Kinds() {
		kinds[k.GroupKind()] = k.Version
	}
	namespaces := map[schema.GroupKind][]string{}
	for _, r := range known {
		kind := r.GroupVersionKind().GroupKind()
		kinds[kind] = r.Version
		if r.Namespace != "" && !slices.Contains(namespaces[kind], r.Namespace) {
			namespaces[kind] = append(namespaces[kind], r.Namespace)
		}
	}
	opts = append([]client.ListOption{client.MatchingLabels{render.ManagedByLabel: render.ManagedBy}, client.Limit(200)}, opts...)
	var out []Ref
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }) {
		gvk := kind.WithVersion(kinds[kind])
		namespaced, err := o.client.IsObjectNamespaced(partial(gvk))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", kind, err)
		}
		where := []string{""}
		if namespaced {
			where = append(namespaces[kind], o.cfg.Namespace)
			slices.Sort(where)
			where = slices.Compact(where)
		}
		for _, ns := range where {
			found, err := o.list(ctx, gvk, append([]client.ListOption{client.InNamespace(ns)}, opts...))
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return o.readable(ctx, without(out, known))
}

// readable returns the elements of found that still exist, without the cluster-scoped ones that BTP Manager may not read. In a namespace
// BTP Manager may read all objects of a kind that it may list: a missing right there is an error.
func (o *Operand) readable(ctx context.Context, found []Ref) ([]Ref, error) {
	var out []Ref
	for _, ref := range found {
		live, err := o.getMeta(ctx, ref)
		switch {
		case apierrors.IsForbidden(err) && ref.Namespace == "":
			log.FromContext(ctx).Info("keeping an object with our label that no chart of the operand has", "object", ref.String(), "err", err.Error())
		case err != nil:
			return nil, err
		case live != nil:
			out = append(out, ref)
		}
	}
	return out, nil
}

// strayed lists the Secrets of the chart in other namespaces than in known, with the names in known: the Secret with the credentials no
// longer contains their previous namespace.
func (o *Operand) strayed(ctx context.Context, known []Ref) ([]Ref, error) {
	secret := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	found, err := o.list(ctx, secret, []client.ListOption{
		client.MatchingLabels{render.ManagedByLabel: render.ManagedBy}, client.HasLabels{render.ChartVersionLabel}, client.Limit(200),
	})
	return slices.DeleteFunc(found, func(f Ref) bool {
		return !slices.ContainsFunc(known, func(k Ref) bool { return k.GroupVersionKind() == secret && k.Name == f.Name })
	}), err
}

// list reads the metadata of objects page by page.
func (o *Operand) list(ctx context.Context, gvk schema.GroupVersionKind, opts []client.ListOption) ([]Ref, error) {
	var out []Ref
	next := ""
	for {
		page := new(metav1.PartialObjectMetadataList)
		page.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err := o.client.List(ctx, page, append([]client.ListOption{client.Continue(next)}, opts...)...)
		if gone(err) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", gvk.GroupKind(), err)
		}
		for i := range page.Items {
			ref := Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: page.Items[i].Namespace, Name: page.Items[i].Name}
			if ref.identity() != (Ref{Kind: "ConfigMap", Namespace: o.cfg.Namespace, Name: InventoryName}) {
				out = append(out, ref)
			}
		}
		if next = page.Continue; next == "" {
			return out, nil
		}
	}
}

func partial(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	obj := new(metav1.PartialObjectMetadata)
	obj.SetGroupVersionKind(gvk)
	return obj
}
