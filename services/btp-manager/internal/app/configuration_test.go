package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/app"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
)

// settingsMap returns the ConfigMap with settings.
func settingsMap(data map[string]string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{Data: data}
	o.Namespace, o.Name = kymaSystem, "sap-btp-manager"
	return o
}

// set changes the settings.
func (s *system) set(data map[string]string) {
	s.t.Helper()
	if err := s.Update(s.t.Context(), settingsMap(data)); err != nil {
		s.t.Fatal(err)
	}
}

func TestSettings_ConfigMap_OverridesFlags(t *testing.T) {
	s := newSystem(t)
	seen := s.observe()
	s.start()
	s.deployments.Hold()
	s.create(secret())
	o := s.operator("btpoperator")
	s.await(o, v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)

	t.Run("a timeout that is shorter than its flag", func(t *testing.T) {
		s := s.in(t)
		s.create(settingsMap(map[string]string{"ReadyTimeout": "1s", "ReadyCheckInterval": "100ms"}))
		s.awaitMetric(1, "custom_config_applied")
		// The running provisioning keeps its deadline; the next one has the new one.
		s.delete(secret())
		s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
		s.create(secret())
		message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed)
		if !strings.Contains(message, "1s") || !strings.Contains(message, "Deployment kyma-system/"+operandPod) {
			t.Errorf("message %q names neither the time nor what is not ready", message)
		}
		s.deployments.Release()
		s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	})
	t.Run("a timer", func(t *testing.T) {
		s.set(map[string]string{"ReadyStateRequeueInterval": "1s"})
		seen.settle(t)
		n := seen.passes()
		seen.more(t, n)
		seen.more(t, n+1)
	})
	t.Run("one that is refused changes nothing", func(t *testing.T) {
		s := s.in(t)
		s.set(map[string]string{"ReadyStateRequeueInterval": "soon", "BlockDeletion": "true"})
		s.awaitMetric(1, "config_rejected")
		refused := settingsMap(nil)
		s.exists(refused)
		note := s.awaitEvent(refused, "Warning", "ConfigRejected")
		for _, want := range []string{"ReadyStateRequeueInterval", `"soon"`, "1s"} {
			if !strings.Contains(note, want) {
				t.Errorf("the event %q does not name %s", note, want)
			}
		}
		if got := s.metric("custom_config_applied"); got != 1 {
			t.Errorf("custom_config_applied is %v, want 1: the ConfigMap before it is in force", got)
		}
		seen.settle(t)
		n := seen.passes()
		seen.more(t, n)
		seen.more(t, n+1)
	})
	t.Run("one without a value has that of its flag again", func(t *testing.T) {
		s := s.in(t)
		s.set(map[string]string{"HardDeleteTimeout": "1h"})
		s.awaitMetric(0, "config_rejected")
		seen.rest(t, 2*time.Second) // longer than the previous interval of one second
	})
	t.Run("others are not for it", func(t *testing.T) {
		s := s.in(t)
		s.delete(settingsMap(nil))
		s.awaitMetric(0, "custom_config_applied")
		other, elsewhere := settingsMap(map[string]string{"ReadyTimeout": "1s"}), settingsMap(map[string]string{"ReadyTimeout": "1s"})
		other.Name, elsewhere.Namespace = "sap-btp-manager-2", "default"
		s.create(other)
		s.create(elsewhere)
		t.Cleanup(func() { _ = s.Delete(context.WithoutCancel(s.t.Context()), elsewhere) })
		s.poke(o)
		seen.settle(t)
		if got := s.metric("custom_config_applied"); got != 0 {
			t.Errorf("custom_config_applied is %v with ConfigMaps of other names and namespaces", got)
		}
		s.create(settingsMap(map[string]string{"ReadyTimeout": "2m"}))
		s.awaitMetric(1, "custom_config_applied")
	})
	t.Run("it is read at the start", func(t *testing.T) {
		s.stop()
		s.start()
		s.in(t).awaitMetric(1, "custom_config_applied")
	})
}

func TestDeletion_BlockDeletionRemoved_Continues(t *testing.T) {
	s := newSystem(t)
	s.create(settingsMap(map[string]string{"BlockDeletion": "true"}))
	s.start()
	o := s.provisioned()
	s.namespace("users")
	s.serviceInstance("users", "an-instance")
	s.delete(o)
	s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
	s.delete(settingsMap(nil))
	s.awaitGone(o)
}

// The previous settings are lost with the process, and they may block the deletion.
func TestDeletion_ConfigRejectedAtStart_Waits(t *testing.T) {
	s := newSystem(t)
	s.create(settingsMap(map[string]string{"BlockDeletion": "true"}))
	s.start()
	o := s.provisioned()
	s.namespace("users")
	instance := s.serviceInstance("users", "an-instance")
	s.delete(o)
	s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
	s.set(map[string]string{"BlockDeletion": "true", "ReadyTimeout": "never"})
	s.awaitMetric(1, "config_rejected")
	s.stop()
	s.start()
	said := func(parts ...string) func() bool {
		return func() bool { return containsAll(o.Status.Conditions[0].Message, parts...) }
	}
	s.until(o, "the message names the error in the ConfigMap", said("kyma-system/sap-btp-manager", "ReadyTimeout", `"never"`))
	s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
	if !s.exists(instance) || instance.GetDeletionTimestamp() != nil {
		t.Error("the instance is being deleted")
	}
	s.set(map[string]string{"BlockDeletion": "true"})
	s.until(o, "the message counts what blocks", said("1 service instance"))
	s.delete(instance)
	s.awaitGone(o)
}

func TestSettings_NoBtpOperator_AreRead(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.create(settingsMap(map[string]string{"ReadyTimeout": "2m"}))
	s.awaitMetric(1, "custom_config_applied")
	s.set(map[string]string{"ReadyTimeout": "-2m"})
	s.awaitMetric(1, "config_rejected")
	s.delete(settingsMap(nil))
	s.awaitMetric(0, "custom_config_applied")
	s.awaitMetric(0, "config_rejected")
}

func TestOperand_LimitedCache_IsDefault(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.provisioned()
	if got := s.operandConfig()["ENABLE_LIMITED_CACHE"]; got != "true" {
		t.Errorf("ENABLE_LIMITED_CACHE is %q without a setting, want true", got)
	}
	s.stop()
	s.settings.EnableLimitedCache = false
	s.start()
	testkit.Eventually(t, waitTimeout, "the cache is not limited", func() bool { return s.operandConfig()["ENABLE_LIMITED_CACHE"] == "false" })
}

func TestCheck_InvalidImage_IsRejected(t *testing.T) {
	cfg := app.Config{Settings: config.Default()}
	for image, valid := range map[string]bool{
		"":                                  true,
		"registry.example:5000/operand:2":   true,
		"registry.example/operand:a b":      false,
		"registry.example/operand@sha256:1": false,
		"$(IMAGE)":                          false,
	} {
		cfg.Image = image
		err := app.Check(cfg, operand.Chart())
		if (err == nil) != valid || err != nil && !strings.Contains(err.Error(), "manager.image") {
			t.Errorf("%q: got %v, want that it is valid: %t", image, err, valid)
		}
		if valid {
			continue
		}
		if _, err := app.New(cfg, app.Deps{Chart: operand.Chart()}); err == nil {
			t.Errorf("BTP Manager starts with the image %q", image)
		}
	}
}

func TestSettings_Invalid_PreventStart(t *testing.T) {
	s := newSystem(t)
	s.settings.ReadyTimeout = -time.Second
	_, err := app.New(app.Config{Settings: s.settings}, app.Deps{REST: s.rest, Chart: s.chart, Metrics: prometheus.NewRegistry()})
	if err == nil || !strings.Contains(err.Error(), "ReadyTimeout") {
		t.Errorf("got %v, want an error about ReadyTimeout", err)
	}
}
