package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

// listAll lists what the chart makes and Kubernetes makes of it, in the namespace of the release.
func listAll(t *testing.T, c client.Client) ([]client.Object, error) {
	t.Helper()
	var found []client.Object
	for kind, list := range map[string]client.ObjectList{
		"Deployment": &appsv1.DeploymentList{}, "StatefulSet": &appsv1.StatefulSetList{}, "ReplicaSet": &appsv1.ReplicaSetList{},
		"Job": &batchv1.JobList{}, "CronJob": &batchv1.CronJobList{}, "Service": &corev1.ServiceList{}, "Secret": &corev1.SecretList{},
		"ConfigMap": &corev1.ConfigMapList{}, "ServiceAccount": &corev1.ServiceAccountList{}, "Pod": &corev1.PodList{},
		"NetworkPolicy": &networkingv1.NetworkPolicyList{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudgetList{},
	} {
		if err := c.List(t.Context(), list, client.InNamespace(e2eNamespace)); err != nil {
			return nil, err
		}
		items, err := items(list)
		if err != nil {
			return nil, err
		}
		for _, o := range items {
			// Kubernetes keeps these in every namespace.
			if o.GetName() == "kube-root-ca.crt" || kind == "ServiceAccount" && o.GetName() == "default" {
				continue
			}
			o.GetObjectKind().SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
			found = append(found, o)
		}
	}
	return found, nil
}

func TestChart_SimulatedCluster_InstallUpgradeRemove(t *testing.T) {
	needed(t)
	cluster := kubetest.Full(t)
	// kubetest has no controller of StatefulSets.
	kubeServer(t, cluster, "kube-controller-manager", "--use-service-account-credentials=false", "--controllers=statefulset-controller,cronjob-controller")
	c := cluster.Client(t, client.Options{})
	h := newHelm(t, cluster)

	h.install(values(t, "broker: {replicas: 2}"))
	first := map[types.UID]bool{}
	components := map[string]bool{}
	for _, p := range pods(t, c) {
		if p.Labels["app.kubernetes.io/component"] == "migrations" {
			continue
		}
		first[p.UID] = true
		components[p.Labels["app.kubernetes.io/component"]] = true
		if !ready(&p) {
			t.Errorf("pod %s is not ready after the installation", p.Name)
		}
	}
	if len(components) != 17 {
		t.Errorf("%d components run: %v", len(components), components)
	}
	keys := get(t, c, "keb-keys", &corev1.Secret{}).Data

	require.NoError(t, h.upgrade(t.Context(), values(t, "broker: {replicas: 2}\npodAnnotations: {again: 'yes'}\nworkers: {lms: {enabled: true}}")), "helm upgrade")
	for _, p := range pods(t, c) {
		if first[p.UID] {
			t.Errorf("pod %s is that of before", p.Name)
		}
	}
	get(t, c, "keb-worker-lms", &appsv1.Deployment{})
	for name, value := range get(t, c, "keb-keys", &corev1.Secret{}).Data {
		if string(value) != string(keys[name]) {
			t.Errorf("the upgrade has made another %s", name)
		}
	}

	h.rollback(1)
	if d := get(t, c, "keb-worker-avs", &appsv1.Deployment{}); d.Spec.Template.Annotations["again"] != "" || d.Status.ReadyReplicas != 1 {
		t.Errorf("after the rollback: %v, %d ready", d.Spec.Template.Annotations, d.Status.ReadyReplicas)
	}

	// The commands that end docs/step-author.md and the README of keb worker init.
	for release, of := range map[string]struct{ values, deployment string }{
		"hello":     {"{image: 'example.com/hello:1', worker: hello-world}", "hello-hello-world"},
		"my-worker": {readFile(t, initFolder+"common/values.yaml"), "my-worker"},
	} {
		var given map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(of.values), &given))
		h.installChart(workerDir, release, given)
		if d := get(t, c, of.deployment, &appsv1.Deployment{}); d.Status.ReadyReplicas != 2 {
			t.Errorf("of the team's worker %s %d replicas are ready", of.deployment, d.Status.ReadyReplicas)
		}
		h.uninstall(release)
	}

	h.uninstall(releaseName)
	if left := leftovers(t, c); len(left) > 0 {
		t.Errorf("the release has left behind:%s", lines(left))
	}
}

func TestChart_ExternalDatabase_MigratesFirst(t *testing.T) {
	needed(t)
	cluster := kubetest.Full(t)
	kubeServer(t, cluster, "kube-controller-manager", "--use-service-account-credentials=false", "--controllers=statefulset-controller,cronjob-controller")
	c := cluster.Client(t, client.Options{})
	h := newHelm(t, cluster)
	h.install(values(t, "postgres: {existingSecret: database, bundled: {enabled: false}}"))
	var events corev1.EventList
	require.NoError(t, c.List(t.Context(), &events, client.InNamespace(e2eNamespace)))
	var migrated, deployed []corev1.Event
	for _, e := range events.Items {
		switch {
		case e.InvolvedObject.Kind == "Job" && e.Reason == "Completed" && strings.HasPrefix(e.InvolvedObject.Name, "keb-migrate-"):
			migrated = append(migrated, e)
		case e.InvolvedObject.Kind == "Deployment" && e.Reason == "ScalingReplicaSet":
			deployed = append(deployed, e)
		}
	}
	if len(migrated) != 2 || len(deployed) == 0 {
		t.Fatalf("%d migrations completed, %d Deployments scaled", len(migrated), len(deployed))
	}
	last := slices.MaxFunc(migrated, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, d := range deployed {
		if d.FirstTimestamp.Time.Before(last.LastTimestamp.Time) {
			t.Errorf("%s was scaled at %s, before the migration had ended at %s", d.InvolvedObject.Name, d.FirstTimestamp, last.LastTimestamp)
		}
	}
	h.uninstall(releaseName)
	if left := leftovers(t, c); !slices.Equal(left, []string{"Secret keb-keys"}) {
		t.Errorf("left behind, want only the keys of what stays in the database:%s", lines(left))
	}
}
