package certs

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// read returns a Secret. If it does not exist, the result has no data and no UID.
func (c *Certs) read(ctx context.Context, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := c.deps.Client.Get(ctx, client.ObjectKey{Namespace: c.cfg.Namespace, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.cfg.Namespace, Name: name}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", c.cfg.Namespace, name, err)
	}
	return s, nil
}

// differs reports whether a Secret has other data, or lacks a label.
func (c *Certs) differs(s *corev1.Secret, data map[string][]byte) bool {
	for key, value := range c.cfg.Labels {
		if got, ok := s.Labels[key]; !ok || got != value {
			return true
		}
	}
	return !maps.EqualFunc(s.Data, data, bytes.Equal)
}

// write writes data to the Secret. If the Secret has changed since it was read, it returns a conflict. It recreates a Secret that cannot
// contain the data, because it is immutable or has another type.
func (c *Certs) write(ctx context.Context, read *corev1.Secret, kind corev1.SecretType, data map[string][]byte) error {
	next := read.DeepCopy()
	next.Data = data
	if next.Labels == nil {
		next.Labels = make(map[string]string)
	}
	maps.Copy(next.Labels, c.cfg.Labels)
	var err error
	switch {
	case read.UID == "":
		next.Type = kind
		err = c.deps.Client.Create(ctx, next)
	case (read.Immutable != nil && *read.Immutable) || (read.Type != kind && read.Type != corev1.SecretTypeOpaque):
		err = c.replace(ctx, read, next, kind)
	default:
		err = c.deps.Client.Update(ctx, next)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", read.Namespace, read.Name, err)
	}
	return nil
}

func (c *Certs) replace(ctx context.Context, read, next *corev1.Secret, kind corev1.SecretType) error {
	if err := c.deps.Client.Delete(ctx, read, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion}); err != nil {
		return err
	}
	return c.deps.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: next.Namespace, Name: next.Name, Labels: next.Labels, Annotations: next.Annotations},
		Type:       kind,
		Data:       next.Data,
	})
}
