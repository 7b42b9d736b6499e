package kube

import (
	"net/http/httptest"
	"testing"
)

func TestRoute_KubernetesPath_OmitsNames(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/api/v1/namespaces/kyma-system/secrets/sap-btp-manager": "/api/v1/namespaces/{namespace}/secrets/{name}",
		"/api/v1/namespaces/kyma-system/secrets":                 "/api/v1/namespaces/{namespace}/secrets",
		"/api/v1/namespaces/kyma-system":                         "/api/v1/namespaces/{name}",
		"/api/v1/namespaces":                                     "/api/v1/namespaces",
		"/k8s/gardener/apis/core.gardener.cloud/v1beta1/namespaces/garden-kyma/shoots/c-1/status": "/apis/core.gardener.cloud/v1beta1/namespaces/{namespace}/shoots/{name}/status",
		"/apis/apps/v1":  "/apis/apps/v1",
		"/openapi/v3":    "",
		"/apis/a/v1/b/c": "/apis/a/v1/b/{name}",
	} {
		if got := route(httptest.NewRequest("GET", path, nil)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
