package certs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
)

// fakeClient calls a function before each write, and rejects the write with its error.
type fakeClient struct {
	client.Client
	before func(write int, name string) error
	writes int
}

func (f *fakeClient) write(obj client.Object) error {
	f.writes++
	return f.before(f.writes, obj.GetName())
}

func (f *fakeClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := f.write(obj); err != nil {
		return err
	}
	return f.Client.Create(ctx, obj, opts...)
}

func (f *fakeClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := f.write(obj); err != nil {
		return err
	}
	return f.Client.Update(ctx, obj, opts...)
}

// through is a manager whose writes pass through before.
func (w *world) through(before func(write int, name string) error) *certs.Certs {
	now := w.now
	return certs.New(w.cfg, certs.Deps{Client: &fakeClient{Client: w.client, before: before}, Now: func() time.Time { return now }})
}

var errKilled = errors.New("killed")

// The states with a serving certificate that no future CA will have signed.
const (
	foreign = "a foreign serving certificate"
	noCA    = "no CA"
)

// states are the possible states in which managers have to write.
func states(w *world) map[string]func() {
	return map[string]func(){
		"nothing": func() {},
		"a CA that is due": func() {
			due(w)
		},
		"a serving certificate that is due": func() {
			w.now = w.ensure("ca", "serving").RenewAt
		},
		noCA: func() {
			w.ensure("ca", "serving")
			w.remove(certs.CASecret)
		},
		foreign: func() {
			w.ensure("ca", "serving")
			w.put(certs.ServingSecret, issue(w.t, servingTemplate(w), nil).data(w.t))
		},
	}
}

func TestEnsure_KilledBetweenWrites_NextCompletes(t *testing.T) {
	for name := range states(setup(t)) {
		t.Run(name, func(t *testing.T) {
			for _, at := range []int{1, 2} {
				w := setup(t)
				states(w)[name]()
				_, err := w.through(func(write int, _ string) error {
					if write == at {
						return errKilled
					}
					return nil
				}).Ensure(t.Context())
				if err != nil && !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				got, err := w.certs().Ensure(t.Context())
				require.NoError(t, err)
				w.consistent(got)
				w.ensure()
			}
		})
	}
}

func TestRenewal_KilledBetweenWrites_WebhooksWork(t *testing.T) {
	w := setup(t)
	before, old := due(w)
	if _, err := w.through(func(_ int, name string) error {
		if name == certs.ServingSecret {
			return errKilled
		}
		return nil
	}).Ensure(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	after := w.ensure("serving")
	for _, bundle := range [][]byte{before.CABundle, after.CABundle} {
		if err := call(t, old, bundle, w.now); err != nil {
			t.Errorf("the old certificate: %v", err)
		}
		if err := call(t, w.served(), bundle, w.now); err != nil {
			t.Errorf("the new certificate: %v", err)
		}
	}
}

func TestEnsure_TwoManagers_CreateOnePair(t *testing.T) {
	for name := range states(setup(t)) {
		t.Run(name, func(t *testing.T) {
			for _, at := range []int{1, 2} {
				w := setup(t)
				states(w)[name]()
				got, err := w.through(func(write int, _ string) error {
					if write != at {
						return nil
					}
					_, err := w.certs().Ensure(t.Context())
					return err
				}).Ensure(t.Context())
				require.NoError(t, err)
				w.consistent(got)
				w.ensure()
			}
		})
	}
}

func TestEnsure_ManyManagers_CreateOnePair(t *testing.T) {
	for name := range states(setup(t)) {
		t.Run(name, func(t *testing.T) {
			w := setup(t)
			states(w)[name]()
			var managers sync.WaitGroup
			results := make([]certs.Result, 4)
			errs := make([]error, len(results))
			for i := range results {
				managers.Go(func() { results[i], errs[i] = w.certs().Ensure(t.Context()) })
			}
			managers.Wait()
			last := w.ensure()
			seen := 0
			for i, err := range errs {
				if err != nil {
					t.Errorf("manager %d: %v", i, err)
				} else if slices.Equal(results[i].CABundle, last.CABundle) {
					seen++
				}
			}
			want := len(results)
			if name == foreign || name == noCA {
				// Two Secrets cannot be written atomically: a manager that has read the new CA with the certificate of another one may still replace both after
				// another manager has returned them. The watch then notifies that manager. The manager that writes last has seen the current state.
				want = 1
			}
			if seen < want {
				t.Errorf("%d managers returned what is there in the end, want %d", seen, want)
			}
		})
	}
}

func TestEnsure_PermanentConflict_ReturnsError(t *testing.T) {
	w := setup(t)
	w.now = w.ensure("ca", "serving").RenewAt
	writes := 0
	_, err := w.through(func(int, string) error {
		writes++
		s := w.get(certs.ServingSecret)
		s.Annotations = map[string]string{"n": strings.Repeat("x", writes)}
		return w.client.Update(t.Context(), s)
	}).Ensure(t.Context())
	if !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	if writes > 10 {
		t.Errorf("%d attempts", writes)
	}
}

func TestEnsure_APIError_NamesSecret(t *testing.T) {
	w := setup(t)
	_, err := w.through(func(_ int, name string) error {
		return apierrors.NewForbidden(corev1.Resource("secrets"), name, errors.New("no right"))
	}).Ensure(t.Context())
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "write Secret kyma-system/ca-server-cert") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.certs().Ensure(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "read Secret kyma-system/ca-server-cert") {
		t.Errorf("error %v", err)
	}
}

func TestEnsure_Log_ContainsReasonAndNoKey(t *testing.T) {
	w := setup(t)
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 1})
	ctx := log.IntoContext(t.Context(), logger)
	ensure := func() {
		if _, err := w.certs().Ensure(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ensure()
	w.put(certs.CASecret, map[string][]byte{"ca.crt": w.ca().crt(), "ca.key": []byte("hush-hush")})
	ensure()
	w.now = w.now.Add(360 * day)
	ensure()
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		`"certificate"="ca" "reason"="ca.crt is absent"`, `"certificate"="serving" "reason"="its CA is new"`,
		`"certificate"="ca" "reason"="ca.key is not the key of ca.crt"`, `"certificate"="serving" "reason"="it expires soon"`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the log lacks %s:\n%s", want, all)
		}
	}
	if len(lines) != 5 {
		t.Errorf("%d lines, want 5:\n%s", len(lines), all)
	}
	for _, secret := range []string{"hush", "BEGIN", "PRIVATE"} {
		if strings.Contains(all, secret) {
			t.Errorf("the log shows a key:\n%s", all)
		}
	}
}
