package steps_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// Scenario is an operation with the state before it.
type Scenario struct {
	Name string
	// Kyma1 adds the overlay with the systems of the older documents.
	Kyma1 bool
	// ReconcileTime is how long the Reconciler and the Lifecycle Manager take for an installation; a removal takes half of it. Zero
	// means four minutes.
	ReconcileTime time.Duration
	// Before are run first, without faults, and must succeed.
	Before []event.Operation
	// GivenUp is a step of the last operation before it. Its calls get 500, so that the operation does not succeed.
	GivenUp string
	// Prepare changes the world before the tested operation; optional.
	Prepare func(w *World, left Left)
	// Forget lets the tested operation start without what earlier ones have saved.
	Forget bool
	Tested event.Operation
	// NotCompleted are the steps that the tested operation does not complete.
	NotCompleted []string
	// Credentials are the credentials that the tested operation may claim; nil means those of Credentials.
	Credentials map[string]any
}

const canary = "CANARY-7f3b9c"

// Credentials returns the credentials that the workers may claim.
func Credentials() map[string]any {
	return map[string]any{
		event.CredentialsServiceManager: map[string]any{
			"clientid": canary + "-id", "clientsecret": canary + "-secret", "sm_url": "https://sm.example.com",
			"url": "https://" + canary + ".example.com", "xsappname": "x",
		},
		event.CredentialsPlatform: map[string]any{
			"url": "https://sm.example.com", "credentials": map[string]any{
				"basic": map[string]any{"username": canary + "-user", "password": canary + "-password"},
			},
		},
	}
}

// The processes, and those with the overlay of the older documents' systems. They never change.
var (
	builtIn = sync.OnceValues(func() (process.Set, error) { return process.Load(processes.FS) })
	older   = sync.OnceValues(func() (process.Set, error) {
		overlay, err := fs.Sub(processes.Overlays, "overlays")
		if err != nil {
			return nil, err
		}
		return process.Load(processes.FS, overlay)
	})
)

// Processes returns the built-in processes, with or without the overlay of the older documents' systems.
func Processes(t testing.TB, kyma1 bool) process.Set {
	t.Helper()
	load := builtIn
	if kyma1 {
		load = older
	}
	set, err := load()
	require.NoError(t, err)
	return set
}

// Operation returns an operation of a type on the sample instance, which has plan azure and Service Manager credentials.
func Operation(kind event.OperationType) event.Operation {
	op := event.Operation{
		ID: uuid.NewString(), Type: kind, InstanceID: "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20",
		Plan:    event.Plan{ID: "4deee563-e5ec-4731-b9b1-53b42d855f0c", Name: "azure"},
		Context: event.Context{GlobalAccountID: "ga-1", SubaccountID: "sa-1", UserID: "a@example.com", PlatformRegion: "cf-eu10"},
		Runtime: event.Runtime{Name: "demo", ShootName: "c-1a2b3c4", ShootDomain: "c-1a2b3c4.kyma.example.com", Provider: "azure", Region: "eastus"},
		Parameters: json.RawMessage(`{"name":"demo","region":"eastus","machineType":"Standard_D4_v3","autoScalerMin":3,"autoScalerMax":5,
			"maxSurge":1,"maxUnavailable":0,"volumeSizeGb":50,"administrators":["a@example.com"],
			"oidc":{"clientID":"c","issuerURL":"https://issuer.example.com","groupsClaim":"groups","signingAlgs":["RS256"],"usernameClaim":"sub","usernamePrefix":"-"}}`),
		Credentials: []string{event.CredentialsServiceManager, event.CredentialsPlatform},
	}
	switch kind {
	case event.Update:
		op.Parameters = json.RawMessage(`{"name":"demo","region":"eastus","machineType":"Standard_D8_v3","autoScalerMin":3,"autoScalerMax":9,
			"maxSurge":1,"maxUnavailable":0,"volumeSizeGb":50,"administrators":["b@example.com"],
			"oidc":{"clientID":"c","issuerURL":"https://issuer.example.com","groupsClaim":"groups","signingAlgs":["RS256"],"usernameClaim":"sub","usernamePrefix":"-"}}`)
		op.Context.LicenseType = "CUSTOMER"
		op.Update = &event.Changes{
			Parameters:  json.RawMessage(`{"machineType":"Standard_D8_v3","autoScalerMax":9,"administrators":["b@example.com"]}`),
			Credentials: []string{event.CredentialsServiceManager}, LicenseType: true,
		}
	case event.UpgradeKyma:
		op.Upgrade = &event.Upgrade{OrchestrationID: uuid.NewString(), Notification: true}
	case event.UpgradeCluster:
		op.Upgrade = &event.Upgrade{OrchestrationID: uuid.NewString(), KubernetesVersion: "1.31.2", Notification: true}
	}
	return op
}

// Plan is a plan with the place of its runtimes.
type Plan struct {
	event.Plan

	Provider, Region string
}

// Plans returns all plans, azure first.
func Plans() []Plan {
	return []Plan{
		{event.Plan{ID: "4deee563-e5ec-4731-b9b1-53b42d855f0c", Name: "azure"}, "azure", "eastus"},
		{event.Plan{ID: "7d55d31d-35ae-4438-bf13-6ffdfa107d9f", Name: "trial"}, "azure", "westeurope"},
		{event.Plan{ID: "b1a5764e-2ea1-4f95-94c0-2b4538b37b55", Name: "free"}, "aws", "eu-central-1"},
		{event.Plan{ID: "361c511f-f939-4621-b228-d0fb79a1fe15", Name: "aws"}, "aws", "eu-central-1"},
		{event.Plan{ID: "ca6e5357-707f-4565-bbbd-b3ab732597c6", Name: "gcp"}, "gcp", "europe-west3"},
		{event.Plan{ID: "03b812ac-c991-4528-b5bd-08b303523a63", Name: "openstack"}, "openstack", "eu-de-1"},
		{event.Plan{ID: "8cb22518-aa26-44c5-91a0-e669ec9bf443", Name: "azure_lite"}, "azure", "westeurope"},
		{event.Plan{ID: "5cb3d976-b85c-42ea-a636-79cadda109a9", Name: "preview"}, "aws", "eu-central-1"},
		{event.Plan{ID: "03e3cb66-a4c6-4c6a-b4b0-5d42224debea", Name: "own_cluster"}, "", ""},
	}
}

// Kyma1 reports whether the plan has runtimes with Kyma 1.
func (p Plan) Kyma1() bool {
	return slices.Contains([]string{"azure", "azure_lite", "trial", "gcp"}, p.Name)
}

// On returns an operation for an instance of a plan.
func On(kind event.OperationType, p Plan) event.Operation {
	op := Operation(kind)
	op.Plan, op.Runtime.Provider, op.Runtime.Region = p.Plan, p.Provider, p.Region
	if p.Name == "own_cluster" {
		op.Runtime.ShootName, op.Runtime.ShootDomain = "own-1", "own.example.com"
		op.Credentials = append(op.Credentials, event.CredentialsKubeconfig)
	}
	return op
}

// Scenarios returns operations that together run every step.
func Scenarios() []Scenario {
	provision := Operation(event.Provision)
	return []Scenario{
		{Name: "provision", Tested: provision},
		{Name: "update", Before: []event.Operation{provision}, Tested: Operation(event.Update)},
		{Name: "upgradeKyma", Before: []event.Operation{provision}, Tested: Operation(event.UpgradeKyma)},
		{Name: "upgradeCluster", Before: []event.Operation{provision}, Tested: Operation(event.UpgradeCluster)},
		{Name: "deprovision", Before: []event.Operation{provision}, Tested: Operation(event.Deprovision)},
		{Name: "provision Kyma 1", Kyma1: true, Tested: provision},
		{Name: "deprovision Kyma 1", Kyma1: true, Before: []event.Operation{provision}, Tested: Operation(event.Deprovision)},
	}
}

// Play runs a scenario in a world of its own, with a hook for the tested operation.
func Play(t testing.TB, s Scenario, hook Hook) (*World, *Run) {
	t.Helper()
	w := newWorld(t, cmp.Or(s.ReconcileTime, takes))
	if s.Kyma1 {
		w.UseDirector()
	}
	set := Processes(t, s.Kyma1)
	left := map[string]Left{} // by instance
	for i, op := range s.Before {
		last := i == len(s.Before)-1 && s.GivenUp != ""
		run := w.Do(set[op.Type], op, left[op.InstanceID], Credentials(), func(_ string, c event.StepExecute) (*Fault, bool) {
			if last && c.Step == s.GivenUp {
				return &Fault{Status: http.StatusInternalServerError}, false
			}
			return nil, false
		})
		if last {
			w.Restart()
		} else if status := run.Status(); status.State != event.Succeeded || len(status.NotCompleted) > 0 {
			t.Fatalf("%s before it: %+v %+v", op.Type, status, status.Error)
		}
		left[op.InstanceID] = run.Left()
	}
	before := left[s.Tested.InstanceID]
	if s.Prepare != nil {
		s.Prepare(w, before)
	}
	if s.Forget {
		before = Left{}
	}
	credentials := s.Credentials
	if credentials == nil {
		credentials = Credentials()
	}
	return w, w.Do(set[s.Tested.Type], s.Tested, before, credentials, hook)
}

// Variants are operations on other plans, and on instances in other states, for the paths that Scenarios do not take.
func Variants() []Scenario {
	plan := func(op event.Operation, id, name, provider, region string) event.Operation {
		op.Plan, op.Runtime.Provider, op.Runtime.Region = event.Plan{ID: id, Name: name}, provider, region
		return op
	}
	trial := func(kind event.OperationType) event.Operation {
		return plan(Operation(kind), "7d55d31d-35ae-4438-bf13-6ffdfa107d9f", "trial", "azure", "westeurope")
	}
	suspend := trial(event.Deprovision)
	suspend.Temporary = true
	suspended := Operation(event.Deprovision)
	suspended.Temporary = true
	preview := plan(Operation(event.Provision), "5cb3d976-b85c-42ea-a636-79cadda109a9", "preview", "aws", "eu-central-1")
	cleanup := Operation(event.Deprovision)
	cleanup.UserAgent = "accountcleanup-job"
	dryKyma, dryCluster := Operation(event.UpgradeKyma), Operation(event.UpgradeCluster)
	dryKyma.Upgrade.DryRun, dryCluster.Upgrade.DryRun = true, true
	provision := Operation(event.Provision)
	neighbour := Operation(event.Provision)
	neighbour.Plan = event.Plan{ID: "8cb22518-aa26-44c5-91a0-e669ec9bf443", Name: "azure_lite"}
	neighbour.InstanceID, neighbour.Runtime.ShootName = "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a29", "c-9999999"
	renewed := map[string]any{event.CredentialsServiceManager: map[string]any{
		"clientid": canary + "-id-2", "clientsecret": canary + "-secret-2", "sm_url": "https://sm.example.com",
		"url": "https://" + canary + ".example.com", "xsappname": "x",
	}}
	return []Scenario{
		{Name: "provision on another plan in a subaccount with an instance", Before: []event.Operation{neighbour}, Tested: provision},
		{Name: "deprovision without what was saved", Before: []event.Operation{provision}, Forget: true, Tested: Operation(event.Deprovision)},
		{Name: "deprovision Kyma 1 without what was saved", Kyma1: true, Before: []event.Operation{provision}, Forget: true, Tested: Operation(event.Deprovision)},
		{
			Name: "deprovision a runtime in use", Before: []event.Operation{provision}, Prepare: useBTP,
			NotCompleted: []string{"BTPOperator_Cleanup"}, Tested: Operation(event.Deprovision),
		},
		{Name: "renew the credentials", Before: []event.Operation{provision}, Credentials: renewed, Tested: Operation(event.Update)},
		{Name: "provision trial", Tested: trial(event.Provision)},
		{Name: "suspend trial", Before: []event.Operation{trial(event.Provision)}, Tested: suspend},
		{Name: "suspend a trial in use", Before: []event.Operation{trial(event.Provision)}, Prepare: useBTP, Tested: suspend},
		{Name: "unsuspend trial", Before: []event.Operation{trial(event.Provision), suspend}, Tested: trial(event.Provision)},
		{
			Name: "unsuspend with a runtime that is left", Before: []event.Operation{trial(event.Provision), suspend},
			GivenUp: "Remove_Runtime", Tested: trial(event.Provision),
		},
		{
			Name: "unsuspend with a Kyma resource that is left", Before: []event.Operation{trial(event.Provision), suspend},
			GivenUp: "Delete_Kyma_Resource", Tested: trial(event.Provision),
		},
		{
			Name: "unsuspend with an evaluation that is left", Before: []event.Operation{provision, suspended},
			GivenUp: "De-provision_AVS_Evaluations", Tested: provision,
		},
		{
			Name: "unsuspend with a runtime of Kyma 1 that is left", Kyma1: true, Before: []event.Operation{trial(event.Provision), suspend},
			GivenUp: "Remove_Runtime", Tested: trial(event.Provision),
		},
		{Name: "provision preview", Tested: preview},
		{Name: "clean up an account", Before: []event.Operation{provision}, Prepare: useBTP, Tested: cleanup},
		{Name: "dry run of an upgrade of Kyma", Before: []event.Operation{provision}, Tested: dryKyma},
		{Name: "dry run of an upgrade of the cluster", Before: []event.Operation{provision}, Tested: dryCluster},
	}
}

// Parts of a kubeconfig.
var (
	serverOf = regexp.MustCompile(`server:\s*"?([^"\s]+)`)
	tokenOf  = regexp.MustCompile(`token:\s*"?([^"\s]+)`)
)

// useBTP creates a service instance and a binding in the runtime, with finalizers that no controller removes.
func useBTP(w *World, left Left) {
	w.t.Helper()
	var details struct {
		Provisioner struct {
			RuntimeID string `json:"runtimeId"`
		} `json:"provisioner"`
	}
	require.NoError(w.t, json.Unmarshal(left.Details, &details))
	query, err := json.Marshal(map[string]string{
		"query": `query { result: runtimeStatus(id: "` + details.Provisioner.RuntimeID + `") { runtimeConfiguration { kubeconfig } } }`,
	})
	require.NoError(w.t, err)
	answer := w.post(w.url+"/provisioner/graphql", query, map[string]string{"tenant": "ga-1"})
	var status struct {
		Data struct {
			Result struct {
				RuntimeConfiguration struct{ Kubeconfig string }
			}
		}
	}
	require.NoError(w.t, json.Unmarshal(answer, &status))
	kubeconfig := status.Data.Result.RuntimeConfiguration.Kubeconfig
	server, token := serverOf.FindStringSubmatch(kubeconfig), tokenOf.FindStringSubmatch(kubeconfig)
	if server == nil || token == nil {
		w.t.Fatalf("no kubeconfig of %q in %s", details.Provisioner.RuntimeID, answer)
	}
	for _, kind := range []string{"ServiceInstance", "ServiceBinding"} {
		object := `{"apiVersion":"services.cloud.sap.com/v1","kind":"` + kind + `","metadata":{"name":"db","namespace":"default",
			"finalizers":["services.cloud.sap.com/sap-btp-finalizer"]}}`
		resource := map[string]string{"ServiceInstance": "serviceinstances", "ServiceBinding": "servicebindings"}[kind]
		w.post(server[1]+"/apis/services.cloud.sap.com/v1/namespaces/default/"+resource, []byte(object),
			map[string]string{"Authorization": "Bearer " + token[1]})
	}
}

func (w *World) post(url string, body []byte, header map[string]string) []byte {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, url, bytes.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		w.t.Fatalf("POST %s: %d %s %v", url, resp.StatusCode, answer, err)
	}
	return answer
}
