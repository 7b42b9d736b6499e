package deploy_test

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds of the Prometheus operator, with the fields that the chart uses. An unknown field fails the decoding.

type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector          metav1.LabelSelector `json:"selector"`
		NamespaceSelector struct {
			MatchNames []string `json:"matchNames"`
		} `json:"namespaceSelector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleFile `json:"spec"`
}

// ruleFile is a rule file of Prometheus.
type ruleFile struct {
	Groups []struct {
		Name  string      `json:"name"`
		Rules []alertRule `json:"rules"`
	} `json:"groups"`
}

type alertRule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func (m *serviceMonitor) DeepCopyObject() runtime.Object { return deepCopy(m) }
func (r *prometheusRule) DeepCopyObject() runtime.Object { return deepCopy(r) }

func deepCopy[T any](from *T) *T {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	to := new(T)
	if err := json.Unmarshal(text, to); err != nil {
		panic(err)
	}
	return to
}

func addMonitoring(s *runtime.Scheme) error {
	v1 := schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}
	s.AddKnownTypeWithName(v1.WithKind("ServiceMonitor"), &serviceMonitor{})
	s.AddKnownTypeWithName(v1.WithKind("PrometheusRule"), &prometheusRule{})
	return nil
}
