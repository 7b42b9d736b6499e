package stepworkers_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/services/step-workers/avs"
	"github.com/kyma-project/keb/services/step-workers/spc"
)

// steps returns the steps of a worker, created as in its own process.
func steps(t *testing.T, name string, env worker.Env) ([]worker.Step, error) {
	t.Helper()
	all := stepworkers.Programs()
	at := slices.IndexFunc(all, func(p worker.Program) bool { return p.Name == name })
	if at < 0 {
		t.Fatalf("there is no worker %s", name)
	}
	return all[at].Steps(t.Context(), env)
}

func TestProgram_WrongEnvironment_EveryVariableIsNamed(t *testing.T) {
	t.Setenv("KEB_PROVISIONER_URL", "nowhere")
	t.Setenv("KEB_PACE", "0s")
	_, err := steps(t, "provisioner", worker.Env{})
	for _, name := range []string{"KEB_PROVISIONER_URL", "KEB_PACE"} {
		require.ErrorContains(t, err, name)
	}
}

func TestAll_SecretInFile_IsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("from-file\n"), 0o600))
	services, err := stepworkers.All("http://127.0.0.1:8090", stepworkers.Options{Environment: map[string]string{
		"KEB_AVS_PASSWORD_FILE": file, "KEB_AVS_TRIAL_PARENT_ID": "42", "KEB_AVS_PARENT_ID": "7",
	}})
	require.NoError(t, err)
	at := slices.IndexFunc(services, func(s stepworkers.Service) bool { return s.Name == avs.Name })
	got := services[at].Config.(avs.Config)
	if got.Password != "from-file" || got.Trial.ParentID != 42 || got.ParentID != 7 {
		t.Errorf("password %q, places %d and %d", got.Password, got.Trial.ParentID, got.ParentID)
	}
}

func TestProgram_CallsToSystems_AreCounted(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	t.Setenv("KEB_KCP_URL", server.URL)
	t.Setenv("KEB_KYMA_ARTIFACTS_URL", server.URL)
	registry := prometheus.NewRegistry()
	made, err := steps(t, "kyma", worker.Env{Registerer: registry})
	require.NoError(t, err)
	at := slices.IndexFunc(made, func(s worker.Step) bool { return s.Name() == "Provision_Initialization" })
	workertest.Run(t, made[at], workertest.Operation{})
	n, err := testutil.GatherAndCount(registry, "keb_external_requests_total")
	require.NoError(t, err)
	if n == 0 {
		t.Error("no calls are counted")
	}
}

func TestPrograms_AreTheWorkersOfAll(t *testing.T) {
	services, err := stepworkers.All("http://127.0.0.1:8090", stepworkers.Options{})
	require.NoError(t, err)
	var want, got []string
	for _, s := range services {
		want = append(want, s.Name)
	}
	for _, p := range stepworkers.Programs() {
		got = append(got, p.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// The installation has none of the optional systems.
func TestSteps_WithoutURL_AreSkipped(t *testing.T) {
	skippedBy := map[string]string{
		"avs": "KEB_AVS_URL", "edp": "KEB_EDP_URL", "ias": "KEB_IAS_URL", "lms": "KEB_LMS_URL", "event-hubs": "KEB_AZURE_URL", "spc": "KEB_SPC_URL",
	}
	for name, variable := range skippedBy {
		list, err := steps(t, name, worker.Env{})
		require.NoError(t, err)
		for _, step := range list {
			if described, _ := worker.Describe(step); described.Summary == "" {
				t.Errorf("%s is not described", step.Name())
			}
			r := workertest.Run(t, step, workertest.Operation{Worker: name})
			if r.Outcome != skipped || !strings.HasSuffix(r.Message, " has no URL ("+variable+"): skipped") {
				t.Errorf("%s: %s, %q", step.Name(), r.Outcome, r.Message)
			}
			if step.Name() == "Provision_Azure_Event_Hubs" {
				trial := workertest.Operation{Worker: name, Plan: event.Plan{Name: "trial"}}
				if r := workertest.Run(t, step, trial); r.Outcome != succeeded || len(r.Overrides) != 1 {
					t.Errorf("a trial without Event Hubs: %s, %+v", r.Outcome, r)
				}
			}
		}
	}
	questions, err := spc.Questions(spc.Config{}, extclient.Deps{})
	require.NoError(t, err)
	answer, err := questions[0].Answer(t.Context(), []byte(`{"orchestrationId":"o-1","type":"upgradeKyma"}`))
	if got, _ := answer.(event.NotifyAnswer); err != nil || got.Skipped == "" {
		t.Errorf("%+v, %v", answer, err)
	}
}
