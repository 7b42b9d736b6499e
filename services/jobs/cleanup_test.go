package jobs_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/jobs"
)

// inventory is the simulated cloud inventory; it records its requests.
type inventory struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	asked []string
	seen  []testkit.Request
	// before is called for each request and may answer it.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newInventory(t *testing.T) *inventory {
	t.Helper()
	l, err := landscape.New(landscape.Config{Bindings: 1, CISSecret: "CANARY-cis-77e0"}, landscape.Deps{})
	require.NoError(t, err)
	v := &inventory{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := record(t, r)
		v.mu.Lock()
		if strings.HasPrefix(r.URL.Path, "/cis") {
			v.seen = append(v.seen, seen)
		}
		if strings.HasPrefix(r.URL.Path, "/cis/events") {
			v.asked = append(v.asked, r.URL.Query().Get("pageNum"))
		}
		answered := v.before != nil && v.before(w, r)
		v.mu.Unlock()
		if !answered {
			l.Handler().ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		server.Close()
		if broken := l.Violations(); len(broken) > 0 {
			t.Errorf("requests broke the contract of their system:\n%s", strings.Join(broken, "\n"))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	v.url = server.URL
	return v
}

// deleted adds the deletion of a sub-account to the inventory.
func (v *inventory) deleted(subaccounts ...string) {
	v.t.Helper()
	for _, id := range subaccounts {
		v.event(fmt.Sprintf(`{"subaccountId": %q}`, id))
	}
}

func (v *inventory) event(body string) {
	v.t.Helper()
	resp, err := http.Post(v.url+"/admin/systems/cis/events", "application/json", bytes.NewBufferString(body))
	require.NoError(v.t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		v.t.Fatalf("event %s is answered %d", body, resp.StatusCode)
	}
}

func (v *inventory) pages() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.asked)
}

func (v *inventory) into(cfg jobs.Config) jobs.Config {
	cfg.CISURL, cfg.CISTokenURL = v.url+"/cis", v.url+"/cis/oauth/token"
	cfg.CISClientID, cfg.CISClientSecret = "keb", "CANARY-cis-77e0"
	return cfg
}

func TestCleanup_DeletedSubaccounts_AreDeprovisioned(t *testing.T) {
	t.Parallel()
	s := newStandin(
		t, &instance{ID: "a", Subaccount: "gone-1", State: "succeeded"}, &instance{ID: "b", Subaccount: "gone-1", State: "suspended"},
		&instance{ID: "c", Subaccount: "gone-2", State: "provisioning"}, &instance{ID: "d", Subaccount: "alive", State: "succeeded"},
		&instance{ID: "e", Subaccount: "gone-2", State: "deprovisioned"}, &instance{ID: "f", Subaccount: "gone-2", State: "deprovisionincomplete"},
		&instance{ID: "g", Subaccount: "gone-2", State: "failed", Answer: []int{410}},
		&instance{ID: "h", Subaccount: "gone-2", State: "error", Answer: []int{422}},
	)
	v := newInventory(t)
	v.deleted("gone-1", "gone-2", "gone-1", "never-seen")
	v.event(`{"subaccountId": "alive", "eventType": "Subaccount_Creation"}`)
	cfg := v.into(s.config())

	cfg.DryRun = true
	if dry := run(t, jobs.SubaccountCleanup, cfg); dry.Found != 5 || dry.Started != 5 || len(s.requests()) > 0 {
		t.Errorf("dry run: %+v, requests %v", dry, s.requests())
	}
	cfg.DryRun = false
	want := jobs.Report{Job: "subaccount-cleanup", Found: 5, Started: 3, Skipped: 1, Failed: []jobs.Failure{
		{Instance: "h", Reason: "deprovision: osb: 422 instance h says no: Unprocessable Entity"},
	}}
	if diff := cmp.Diff(want, run(t, jobs.SubaccountCleanup, cfg)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	for _, agent := range s.agents {
		if agent != "accountcleanup-job" {
			t.Errorf("a deprovisioning has the user agent %q", agent)
		}
	}
	if len(s.requests()) != 5 {
		t.Errorf("requests %v", s.requests())
	}
}

func TestSubaccountCleanup_InventoryOfVersion1_IsRead(t *testing.T) {
	t.Parallel()
	s := newStandin(
		t, &instance{ID: "a", Subaccount: "gone-1", State: "succeeded"}, &instance{ID: "b", Subaccount: "gone-2", State: "succeeded"},
		&instance{ID: "c", Subaccount: "alive", State: "succeeded"},
	)
	v := newInventory(t)
	v.deleted("gone-1", "gone-2")
	v.event(`{"subaccountId": "alive", "eventType": "Subaccount_Creation"}`)
	cfg := v.into(s.config())
	cfg.CISVersion = "v1.0"
	if got := run(t, jobs.SubaccountCleanup, cfg); got.Started != 2 {
		t.Errorf("report %+v, want 2 started", got)
	}
	cfg.CISVersion = "v3"
	if _, err := jobs.Run(t.Context(), jobs.SubaccountCleanup, cfg, jobs.Deps{}); err == nil || !strings.Contains(err.Error(), "KEB_CIS_VERSION") {
		t.Errorf("version v3 gives %v", err)
	}
}

// The requests to the inventory, which has two pages, and those to the broker.
func TestSubaccountCleanup_EachVersion_RequestsAreGolden(t *testing.T) {
	t.Parallel()
	for version, full := range map[string]int{"v1.0": 1000, "v2.0": 150} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newStandin(
				t, &instance{ID: "a", Subaccount: "gone", State: "succeeded"}, &instance{ID: "b", Subaccount: "gone", State: "suspended"},
			)
			v := newInventory(t)
			for range full + 1 {
				v.deleted("gone")
			}
			cfg := v.into(s.config())
			cfg.CISVersion, cfg.Parallel = version, 1
			run(t, jobs.SubaccountCleanup, cfg)
			testkit.GoldenRequests(t, filepath.Join("testdata", "golden", "cis_"+version+".json"), slices.Concat(v.seen, s.seen), nil)
		})
	}
}

func TestCleanup_ManySubaccounts_AreQueriedInChunks(t *testing.T) {
	t.Parallel()
	s := newStandin(t)
	v := newInventory(t)
	for i := range 120 {
		id := fmt.Sprintf("gone-%d", i)
		v.deleted(id)
		s.instances = append(s.instances, &instance{ID: "i-" + id, Subaccount: id, State: "succeeded"})
	}
	// A duplicate is queried and deprovisioned only once.
	v.deleted("gone-0")
	// The stand-in fails the test if a query contains more than 50 sub-accounts.
	if got := run(t, jobs.SubaccountCleanup, v.into(s.config())); got.Started != 120 {
		t.Errorf("started %d of 120: %+v", got.Started, got)
	}
	lists := 0
	for _, asked := range s.asked {
		if asked == "GET /runtimes" {
			lists++
		}
	}
	if lists != 3 {
		t.Errorf("the broker was asked %d times for lists, want 3", lists)
	}
}

func TestCleanup_OtherEvents_AreIgnored(t *testing.T) {
	t.Parallel()
	v := newInventory(t)
	v.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/cis/events") {
			return false
		}
		answer(w, http.StatusOK, map[string]any{"totalPages": 1, "events": []map[string]any{
			{"entityId": "alive", "eventType": "Subaccount_Update"}, {"entityId": "", "eventType": "Subaccount_Deletion"},
		}})
		return true
	}
	s := newStandin(t, &instance{ID: "a", Subaccount: "alive", State: "succeeded"}, &instance{ID: "b", State: "succeeded"})
	if got := run(t, jobs.SubaccountCleanup, v.into(s.config())); got.Found > 0 || len(s.requests()) > 0 {
		t.Errorf("report %+v, requests %v", got, s.requests())
	}
}

func TestCleanup_LastPage_EndsReading(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		events int
		want   []string
	}{
		"no event":            {0, []string{"0"}},
		"a full page":         {150, []string{"0"}},
		"one more than that":  {151, []string{"0", "1"}},
		"two pages exactly":   {300, []string{"0", "1"}},
		"two and a bit of it": {301, []string{"0", "1", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newInventory(t)
			for i := range tt.events {
				v.deleted(fmt.Sprint(i))
			}
			s := newStandin(t)
			run(t, jobs.SubaccountCleanup, v.into(s.config()))
			if diff := cmp.Diff(tt.want, v.pages()); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCleanup_InventoryOutage_IsRetried(t *testing.T) {
	t.Parallel()
	v := newInventory(t)
	v.deleted("gone")
	failures := 3
	v.before = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/cis/events") || failures == 0 {
			return false
		}
		failures--
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	s := newStandin(t, &instance{ID: "a", Subaccount: "gone", State: "succeeded"})
	if got := run(t, jobs.SubaccountCleanup, v.into(s.config())); got.Started != 1 {
		t.Errorf("report %+v, want one started", got)
	}
}

func TestCleanup_NoInventory_ChangesNothing(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"refused": http.StatusForbidden, "away": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newInventory(t)
			v.deleted("gone")
			v.before = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/cis/events") {
					w.WriteHeader(status)
				}
				return strings.HasPrefix(r.URL.Path, "/cis/events")
			}
			s := newStandin(t, &instance{ID: "a", Subaccount: "gone", State: "succeeded"})
			report, err := jobs.Run(t.Context(), jobs.SubaccountCleanup, v.into(s.config()), jobs.Deps{})
			want := fmt.Sprintf("subaccount-cleanup: read page 0 of the deleted sub-accounts: cis: GET /events/v1/events/central: status %d", status)
			if err == nil || err.Error() != want || report.Error != want || len(s.requests()) > 0 {
				t.Errorf("error %v, report %+v, requests %v", err, report, s.requests())
			}
		})
	}
}
