package services

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxFirst is the number of objects in Left.First.
	maxFirst = 5
	// maxMessage is the maximum length of an object's message in Left.
	maxMessage = 200
)

// Left describes the existing service instances and bindings of a cluster.
type Left struct {
	// Instances and Bindings are their numbers in all namespaces.
	Instances, Bindings int
	// First describes up to five of them, bindings first, with the message of the operand:
	// "ServiceBinding namespace/name: message", or without a message if there is none. A message is one line with at most
	// 200 characters.
	First []string
}

// None reports whether nothing is left.
func (l Left) None() bool { return l.Instances == 0 && l.Bindings == 0 }

// Count counts the service instances and bindings. With an error the numbers are unknown.
func (s *Services) Count(ctx context.Context) (Left, error) {
	bindings, err := s.list(ctx, binding)
	if err != nil {
		return Left{}, err
	}
	instances, err := s.list(ctx, instance)
	if err != nil {
		return Left{}, err
	}
	return s.left(ctx, bindings, instances), nil
}

func (s *Services) left(ctx context.Context, bindings, instances []item) Left {
	l := Left{Instances: len(instances), Bindings: len(bindings)}
	for _, some := range []struct {
		k     kind
		items []item
	}{{binding, bindings}, {instance, instances}} {
		for _, it := range some.items[:min(len(some.items), maxFirst-len(l.First))] {
			l.First = append(l.First, s.describe(ctx, some.k, it))
		}
	}
	return l
}

// describe returns an object's name with the operand's message. If the message cannot be read, it returns only the name.
func (s *Services) describe(ctx context.Context, k kind, it item) string {
	name := fmt.Sprintf("%s %s/%s", k.name, it.namespace, it.name)
	o := k.object("", "")
	err := s.call(ctx, func(ctx context.Context) error {
		return s.deps.Client.Get(ctx, client.ObjectKey{Namespace: it.namespace, Name: it.name}, o)
	})
	if err != nil {
		return name
	}
	if text := message(o.Object); text != "" {
		return name + ": " + text
	}
	return name
}

// message returns the operand's message for an object that is not ready (docs/contracts/btp-manager.md#operand). The reasons determine the
// relevant condition: after a failed deletion, Failed is more specific than Succeeded.
func message(object map[string]any) string {
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	for _, wanted := range []struct{ kind, status string }{{"Failed", "True"}, {"Succeeded", "False"}, {"Ready", "False"}} {
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			if condition["type"] != wanted.kind || condition["status"] != wanted.status {
				continue
			}
			if text, _ := condition["message"].(string); text != "" {
				return shorten(text)
			}
			if reason, _ := condition["reason"].(string); reason != "" {
				return shorten(reason)
			}
		}
	}
	return ""
}

func shorten(text string) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > maxMessage {
		return string(runes[:maxMessage-1]) + "…"
	}
	return string(runes)
}
