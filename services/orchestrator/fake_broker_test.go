package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// orchestrationProcesses are testProcesses with upgrades.
func orchestrationProcesses() fstest.MapFS {
	files := maps.Clone(testProcesses)
	for _, t := range []string{"upgradeKyma", "upgradeCluster"} {
		files[t+".yaml"] = &fstest.MapFile{Data: []byte(`
operation: ` + t + `
timeout: 1h
stages:
  - name: upgrade
    steps:
      - {name: Upgrade, worker: alpha, retry: {every: 50ms, timeout: 10m}}
`)}
	}
	return files
}

// fakeBroker has instances, and records upgrades once per operation ID.
type fakeBroker struct {
	*system
	instances []event.InstanceSummary
	// plans are the names of all plans.
	plans []string
	// old brokers report no versions.
	old bool

	mu       sync.Mutex
	refuse   map[string]string // reason by instance
	recorded map[string]event.UpgradeOrder
	order    []string // instances in the order of their upgrades
	// after is called after a request was handled. Its error becomes the answer.
	after func(asked []event.UpgradeOrder) error
}

// newFakeBroker starts the fake services, without orchestrators and workers.
func newFakeBroker(t *testing.T, instances int) *fakeBroker {
	t.Helper()
	f := &fakeBroker{system: newSystem(t), refuse: map[string]string{}, recorded: map[string]event.UpgradeOrder{}}
	f.cfg.Processes, f.plans = orchestrationProcesses(), []string{"azure", "aws", "trial"}
	f.cfg.OrchestrationsEvery = 50 * time.Millisecond
	for i := range instances {
		f.instances = append(f.instances, event.InstanceSummary{
			InstanceID: fmt.Sprintf("i-%05d", i), Plan: event.Plan{ID: "azure", Name: "azure"}, GlobalAccountID: "ga", SubaccountID: "sa",
			Runtime:   event.Runtime{ShootName: fmt.Sprintf("c-%05d", i), Region: "westeurope"},
			RuntimeID: fmt.Sprintf("r-%05d", i), State: event.InstanceProvisioned,
		})
	}
	f.answer(event.AskInstances, f.answerInstances)
	f.answer(event.AskUpgrade, f.answerUpgrade)
	f.watch()
	return f
}

func (f *fakeBroker) answer(subject string, handle func(ctx context.Context, data []byte) (any, error)) {
	f.t.Helper()
	stop, err := f.bus.Answer(subject, "broker", handle)
	require.NoError(f.t, err)
	f.t.Cleanup(stop)
}

func (f *fakeBroker) answerInstances(_ context.Context, data []byte) (any, error) {
	var request event.InstancesRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	i := 0
	if request.After != "" {
		i = 1 + slices.IndexFunc(f.instances, func(s event.InstanceSummary) bool { return s.InstanceID == request.After })
	}
	answer := event.InstancesAnswer{Instances: f.instances[i:min(i+request.Limit, len(f.instances))], Versions: !f.old}
	if request.After == "" {
		answer.Plans = f.plans
	}
	if n := i + len(answer.Instances); n < len(f.instances) {
		answer.Next = f.instances[n-1].InstanceID
	}
	return answer, nil
}

func (f *fakeBroker) answerUpgrade(ctx context.Context, data []byte) (any, error) {
	var request event.UpgradeRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var answer event.UpgradeAnswer
	var messages []bus.Message
	for _, u := range request.Upgrades {
		result := event.UpgradeRecorded{OperationID: u.OperationID, Refused: f.refuse[u.InstanceID]}
		_, known := f.recorded[u.OperationID]
		if request.ConfirmOnly && !known {
			result.Refused = "the upgrade is not recorded"
		}
		answer.Upgrades = append(answer.Upgrades, result)
		if known || result.Refused != "" {
			continue
		}
		f.recorded[u.OperationID] = u
		f.order = append(f.order, u.InstanceID)
		op := operation(u.Type, u.InstanceID, "azure")
		op.ID, op.Upgrade = u.OperationID, &u.Upgrade
		e, err := bus.New(event.TypeOperationRequested, op.ID, event.SourceBroker, op.ID, time.Now(), event.OperationRequested{Operation: op})
		if err != nil {
			return nil, err
		}
		messages = append(messages, bus.Message{Subject: event.RequestSubject(op.Type), ID: op.ID, Event: e})
	}
	if err := f.bus.Publish(ctx, messages...); err != nil {
		return nil, err
	}
	if f.after != nil {
		if err := f.after(request.Upgrades); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// watch makes the database record after each statement how many members of each orchestration are in progress.
func (f *fakeBroker) watch() {
	f.t.Helper()
	_, err := f.db.Exec(`
CREATE TABLE seen_in_progress (n integer NOT NULL);
CREATE FUNCTION see_in_progress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen_in_progress SELECT count(*) FROM orchestrator.orchestration_members WHERE state = 'in progress' GROUP BY orchestration_id;
    RETURN NULL;
END $$;
CREATE TRIGGER see_in_progress AFTER UPDATE ON orchestrator.orchestration_members FOR EACH STATEMENT EXECUTE FUNCTION see_in_progress()`)
	require.NoError(f.t, err)
}

// mostInProgress returns the highest recorded number of members in progress.
func (f *fakeBroker) mostInProgress() (n int) {
	f.t.Helper()
	require.NoError(f.t, f.db.Get(&n, `SELECT COALESCE(max(n), 0) FROM seen_in_progress`))
	return n
}

// call sends a request to the operator API, and decodes the answer if it has the wanted status.
func (f *fakeBroker) call(method, path, contentType, body string, status int, into any) {
	f.t.Helper()
	code, answer := f.do(method, path, body, "Content-Type", contentType)
	require.Equal(f.t, status, code, "%s %s: %s", method, path, answer)
	if into != nil {
		require.NoErrorf(f.t, json.Unmarshal([]byte(answer), into), "%s %s: %s", method, path, answer)
	}
}

// upgrade orders an orchestration and returns its ID.
func (f *fakeBroker) upgrade(what, body string) string {
	f.t.Helper()
	var answer struct {
		OrchestrationID string `json:"orchestrationID"`
	}
	f.call(http.MethodPost, "/upgrade/"+what, "application/json", body, http.StatusAccepted, &answer)
	return answer.OrchestrationID
}

func (f *fakeBroker) upgradeAll(workers int) string {
	f.t.Helper()
	return f.upgrade("kyma", fmt.Sprintf(`{"targets": {"include": [{"target": "all"}]}, "strategy": {"parallel": {"workers": %d}}}`, workers))
}

type shownOrchestration struct {
	Type, State, Description string
	Parameters               json.RawMessage
	OperationStats           map[string]int
	Pause                    struct{ Reason string }
}

func (f *fakeBroker) orchestration(id string) (o shownOrchestration) {
	f.t.Helper()
	f.get("/orchestrations/"+id, &o)
	return o
}

func (f *fakeBroker) awaitOrchestration(id, state string) shownOrchestration {
	f.t.Helper()
	var o shownOrchestration
	testkit.Eventually(f.t, patience, "the orchestration is "+state, func() bool {
		o = f.orchestration(id)
		return o.State == state
	})
	return o
}

func (f *fakeBroker) awaitStats(id string, want map[string]int) {
	f.t.Helper()
	testkit.Eventually(f.t, patience, fmt.Sprintf("the operations are %v", want), func() bool {
		return maps.Equal(f.orchestration(id).OperationStats, want)
	})
}

type shownMember struct {
	OperationID, InstanceID, RuntimeID, GlobalAccountID, SubAccountID, OrchestrationID string
	ServicePlanID, ServicePlanName, ShootName, State, Description, RetriedAs           string
	DryRun                                                                             bool
	MaintenanceWindowBegin, MaintenanceWindowEnd                                       *time.Time
	KymaConfig, ClusterConfig                                                          map[string]string
}

func (f *fakeBroker) members(id, query string) []shownMember {
	f.t.Helper()
	var list struct {
		Data              []shownMember
		Count, TotalCount int
	}
	f.get("/orchestrations/"+id+"/operations?page_size=1000"+query, &list)
	if list.Count != len(list.Data) || list.TotalCount < list.Count {
		f.t.Errorf("%d operations, count %d, totalCount %d", len(list.Data), list.Count, list.TotalCount)
	}
	return list.Data
}

// eachOnce fails the test unless each instance was upgraded by one operation, whose step ran once.
func (f *fakeBroker) eachOnce() {
	f.t.Helper()
	f.mu.Lock()
	order := slices.Sorted(slices.Values(f.order))
	f.mu.Unlock()
	var all []string
	for _, i := range f.instances {
		all = append(all, i.InstanceID)
	}
	if diff := cmp.Diff(all, order); diff != "" {
		f.t.Errorf("upgraded instances (-want +got):\n%s", diff)
	}
	f.script.mu.Lock()
	defer f.script.mu.Unlock()
	if twice := repeats(f.script.runs); len(twice) > 0 || len(f.script.runs) != len(f.instances) {
		f.t.Errorf("%d steps ran for %d instances, more than once: %v", len(f.script.runs), len(f.instances), twice)
	}
}
