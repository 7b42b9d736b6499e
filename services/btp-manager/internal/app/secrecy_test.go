package app_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// said collects all output of BTP Manager, by its destination.
func (s *system) said() map[string]string {
	s.t.Helper()
	out := map[string]string{"the log": s.log.String()}
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	var metrics strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&metrics, f); err != nil {
			s.t.Fatal(err)
		}
	}
	out["the metrics"] = metrics.String()
	for name, list := range map[string]client.ObjectList{
		"an event": new(eventsv1.EventList), "a BtpOperator": new(v1alpha1.BtpOperatorList), "a ConfigMap": new(corev1.ConfigMapList),
	} {
		if err := s.List(s.t.Context(), list); err != nil {
			s.t.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			s.t.Fatal(err)
		}
		out[name] = string(text)
	}
	for name, o := range s.made() {
		if !strings.HasSuffix(name, "/sap-btp-service-operator") {
			text, err := o.MarshalJSON()
			if err != nil {
				s.t.Fatal(err)
			}
			out[name] = string(text)
		}
	}
	return out
}

func TestCredentials_LogsAndEvents_ContainNone(t *testing.T) {
	const canary = "canary-7f3a"
	s := newSystem(t)
	s.start()
	s.create(secret("clientsecret", canary, "cluster_id", "-"))
	o := s.operator("btpoperator")
	quietly := func(what string) {
		t.Helper()
		for where, text := range s.said() {
			for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), fmt.Sprintf("%x", canary)} {
				if strings.Contains(text, form) {
					t.Errorf("%s: %s holds a credential", what, where)
				}
			}
		}
	}
	for _, tt := range []struct {
		name   string
		do     func()
		state  v1alpha1.State
		reason v1alpha1.Reason
		says   string
	}{
		{"a Secret that lacks something", func() {}, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret, "cluster_id"},
		{"all is well", func() { s.change("cluster_id", "a-cluster") }, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded, "ready"},
		{"a client ID that cannot be", func() { s.change("clientid", canary+"\n") }, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret, "clientid"},
		{"addresses that cannot be", func() {
			s.change("clientid", "a-client", "sm_url", canary+"://:%", "tokenurl", "https://user:"+canary+"@auth.example.com")
		}, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret, "tokenurl"},
		{"a namespace that cannot be", func() {
			s.change("sm_url", "https://sm.example.com", "tokenurl", "https://auth.example.com", "credentials_namespace", canary+"!")
		}, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret, "credentials_namespace"},
		{"a namespace that is not there", func() {
			s.change("tokenurlsuffix", canary, "more", canary, "credentials_namespace", "not-there")
		}, v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed, "not-there"},
		{"all is well again", func() { s.change("credentials_namespace", "-") }, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded, "ready"},
	} {
		tt.do()
		s.until(o, tt.name+" is told", func() bool {
			c := o.Status.Conditions
			return len(c) == 1 && o.Status.State == tt.state && c[0].Reason == string(tt.reason) && strings.Contains(c[0].Message, tt.says)
		})
		quietly(tt.name)
	}

	frozen := operandSecret(kymaSystem)
	s.exists(frozen)
	s.patch(frozen, `{"immutable":true}`)
	s.change("clientsecret", canary+"-2")
	testkit.Eventually(t, waitTimeout, "the immutable Secret of the operand to be replaced", func() bool {
		got := operandSecret(kymaSystem)
		return s.exists(got) && string(got.Data["clientsecret"]) == canary+"-2" && got.Immutable == nil
	})
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	quietly("an immutable Secret")
	s.delete(o)
	s.awaitGone(o)
	quietly("a deprovisioning")
	if !strings.Contains(s.log.String(), "cluster_id") {
		t.Error("the log is not what this test takes it for")
	}
}
