package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

func TestImage_Reference_IsSplit(t *testing.T) {
	t.Parallel()
	digest := strings.Repeat("0123456789abcdef", 4)
	for reference, want := range map[string]map[string]any{
		"registry.example.com:5000/a/operand:1.2.3":       {"repository": "registry.example.com:5000/a/operand", "tag": "1.2.3", "sha": ""},
		"registry.example.com/operand@sha256:" + digest:   {"repository": "registry.example.com/operand", "tag": "", "sha": digest},
		"registry.example.com/operand:1@sha256:" + digest: {"repository": "registry.example.com/operand", "tag": "1", "sha": digest},
		"registry.example.com:5000/operand":               {"repository": "registry.example.com:5000/operand", "tag": "", "sha": ""},
	} {
		if diff := cmp.Diff(want, image(reference)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reference, diff)
		}
	}
}

func TestLeader_EqualAge_FirstByNamespaceAndName(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Unix(100, 0))
	made := func(namespace, name string, age time.Duration) v1alpha1.BtpOperator {
		at := metav1.NewTime(now.Add(-age))
		return v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: at, Finalizers: []string{v1alpha1.Finalizer}}}
	}
	freed := made("a", "a", time.Hour)
	freed.DeletionTimestamp, freed.Finalizers = &now, nil
	all := []v1alpha1.BtpOperator{freed, made("b", "b", time.Second), made("b", "a", time.Second), made("a", "z", time.Second), made("z", "z", time.Minute)}
	for n, want := range map[int]string{1: "", 2: "b/b", 3: "b/a", 4: "a/z", 5: "z/z"} {
		got := ""
		if l := leader(all[:n]); l != nil {
			got = l.Namespace + "/" + l.Name
		}
		if got != want {
			t.Errorf("of %d BtpOperators %q leads, want %q", n, got, want)
		}
	}
}
