package jobs_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/jobs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

const (
	user     = "keb"
	password = "CANARY-pw-51c2"
	// waitLimit is the time limit for one condition on a busy machine.
	waitLimit = time.Minute
)

// instance is an instance in the operator list.
type instance struct {
	ID         string
	State      string
	Plan       string
	Subaccount string
	Created    time.Time
	Expired    time.Time
	// Leaving means that the last operation is a deprovisioning.
	Leaving bool
	// Answer lists the statuses of the first requests for it, in place of a success.
	Answer []int
	// Running is the running operation that a dry run finds.
	Running string
	// Ends is the end of its operation; "" means succeeded.
	Ends string
	// Left is its state after the end of its operation; "" means that it is gone.
	Left string
}

// standin is a stand-in for the broker: its operator routes and the part of the OSB API that the jobs use.
type standin struct {
	t       *testing.T
	url     string
	handler http.Handler

	mu        sync.Mutex
	instances []*instance
	asked     []string
	agents    []string
	seen      []testkit.Request
	polls     map[string]int
	busy, top int
	// listed is called after each part of the list, with the lock held.
	listed func()
	// hold, if not nil, blocks every request for an instance until it is closed or sends a value.
	hold chan struct{}
	// down is the status of every answer, unless it is 0.
	down int
	// token, if not empty, is accepted instead of user and password.
	token string
	// retryAfter is the header of a poll of a running operation.
	retryAfter string
}

func newStandin(t *testing.T, instances ...*instance) *standin {
	t.Helper()
	s := &standin{t: t, instances: instances, polls: map[string]int{}, retryAfter: "0"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /runtimes", s.list)
	mux.HandleFunc("POST /runtimes/{id}/deprovision-retrigger", s.retrigger)
	mux.HandleFunc("PUT /expire/service_instance/{id}", s.accept)
	mux.HandleFunc("DELETE /oauth/v2/service_instances/{id}", s.deprovision)
	mux.HandleFunc("GET /oauth/v2/service_instances/{id}/last_operation", s.poll)
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.refuses(w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	})
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// RoundTrip answers without the network, so that a test can have its own clock.
func (s *standin) RoundTrip(r *http.Request) (*http.Response, error) {
	received := r.Clone(r.Context())
	if received.Body == nil {
		received.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, received)
	return w.Result(), nil
}

func (s *standin) refuses(w http.ResponseWriter, r *http.Request) bool {
	seen := record(s.t, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen)
	name, secret, _ := r.BasicAuth()
	allowed := name == user && secret == password
	if s.token != "" {
		allowed = r.Header.Get("Authorization") == "Bearer "+s.token
	}
	switch {
	case s.down != 0:
		answer(w, s.down, map[string]string{"error": "away"})
	case !allowed:
		answer(w, http.StatusUnauthorized, map[string]string{"error": "unauthorized"})
	default:
		return false
	}
	return true
}

// record returns r for the record and restores its body.
func record(t *testing.T, r *http.Request) testkit.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return testkit.NewRequest(r, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// list answers with the instances after a position, the oldest first.
func (s *standin) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, "GET /runtimes")
	q := r.URL.Query()
	size, err := strconv.Atoi(q.Get("page_size"))
	if err != nil || size < 1 || size > 100 || len(q["subaccount"]) > 50 {
		s.t.Errorf("bad request %s", r.URL.RawQuery)
	}
	position := func(i *instance) string { return i.Created.UTC().Format("2006-01-02T15:04:05.000000000Z") + "," + i.ID }
	after := q.Get("after")
	if at, id, ok := strings.Cut(after, ","); ok {
		created, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			s.t.Error(err)
		}
		after = position(&instance{ID: id, Created: created})
	}
	var matching []*instance
	for _, i := range s.instances {
		if has(q["state"], i.State) && has(q["plan"], i.Plan) && has(q["subaccount"], i.Subaccount) && has(q["instance_id"], i.ID) && position(i) > after {
			matching = append(matching, i)
		}
	}
	slices.SortFunc(matching, func(a, b *instance) int { return strings.Compare(position(a), position(b)) })
	data := []map[string]any{}
	for _, i := range matching[:min(size, len(matching))] {
		status := map[string]any{"state": i.State, "createdAt": i.Created}
		if i.Leaving {
			status["deprovisioning"] = map[string]any{"state": i.State}
		}
		if !i.Expired.IsZero() {
			status["expiredAt"] = i.Expired
		}
		data = append(data, map[string]any{
			"instanceID": i.ID, "subAccountID": i.Subaccount, "serviceClassID": "service", "servicePlanID": "plan-of-" + i.ID,
			"servicePlanName": i.Plan, "status": status,
		})
	}
	answer(w, http.StatusOK, map[string]any{"data": data, "count": len(data), "totalCount": len(matching)})
	if s.listed != nil {
		s.listed()
	}
}

func has(values []string, value string) bool {
	return len(values) == 0 || slices.Contains(values, value)
}

// begin records a request for an instance; nil means that the request was already answered.
func (s *standin) begin(w http.ResponseWriter, r *http.Request) *instance {
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSuffix(r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery, "?"))
	s.agents = append(s.agents, r.UserAgent())
	s.busy++
	s.top = max(s.top, s.busy)
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	at := slices.IndexFunc(s.instances, func(i *instance) bool { return i.ID == r.PathValue("id") })
	if at < 0 {
		answer(w, http.StatusNotFound, map[string]string{"error": "there is no such instance"})
		return nil
	}
	i := s.instances[at]
	if len(i.Answer) > 0 {
		status := i.Answer[0]
		i.Answer = i.Answer[1:]
		answer(w, status, map[string]string{"error": "instance " + i.ID + " says no"})
		return nil
	}
	return i
}

func (s *standin) retrigger(w http.ResponseWriter, r *http.Request) {
	i := s.begin(w, r)
	switch {
	case i == nil:
	case r.URL.Query().Get("dry_run") == "true":
		answer(w, http.StatusOK, map[string]any{"dryRun": true, "operation": i.Running})
	default:
		s.started(w, i)
	}
}

func (s *standin) accept(w http.ResponseWriter, r *http.Request) {
	if i := s.begin(w, r); i != nil {
		s.started(w, i)
	}
}

func (s *standin) deprovision(w http.ResponseWriter, r *http.Request) {
	i := s.begin(w, r)
	if i == nil {
		return
	}
	q := r.URL.Query()
	if q.Get("service_id") != "service" || q.Get("plan_id") != "plan-of-"+i.ID || q.Get("accepts_incomplete") != "true" {
		s.t.Errorf("bad request %s", r.URL.RawQuery)
	}
	s.started(w, i)
}

func (s *standin) started(w http.ResponseWriter, i *instance) {
	answer(w, http.StatusAccepted, map[string]string{"operation": "op-" + i.ID})
}

// poll answers in progress once, and then the end of the operation.
func (s *standin) poll(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.PathValue("id")
	s.polls[id]++
	at := slices.IndexFunc(s.instances, func(i *instance) bool { return i.ID == id })
	i := s.instances[at]
	if r.URL.Query().Get("operation") != "op-"+id {
		s.t.Errorf("polled %s", r.URL.RawQuery)
	}
	switch {
	case i.Ends == "never" || s.polls[id] == 1:
		w.Header().Set("Retry-After", s.retryAfter)
		answer(w, http.StatusOK, map[string]string{"state": "in progress"})
	case i.Ends == "failed":
		answer(w, http.StatusOK, map[string]string{"state": "failed", "description": "the quota is used up"})
	case i.Left != "":
		i.State = i.Left
		answer(w, http.StatusOK, map[string]string{"state": "succeeded"})
	default:
		i.State = "deprovisioned"
		answer(w, http.StatusGone, map[string]string{})
	}
}

// requests returns the sorted requests for instances.
func (s *standin) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, a := range s.asked {
		if a != "GET /runtimes" {
			all = append(all, a)
		}
	}
	slices.Sort(all)
	return all
}

func (s *standin) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// config returns the configuration of a job for the stand-in, without waits.
func (s *standin) config() jobs.Config {
	cfg := service.Defaults[jobs.Config]()
	cfg.BrokerURL, cfg.User, cfg.Password = s.url, user, password
	cfg.RetryPause, cfg.CISPause = time.Millisecond, time.Millisecond
	cfg.RequestTimeout, cfg.WaitTimeout = waitLimit, waitLimit
	cfg.PollEvery = time.Millisecond
	return cfg
}

func run(t *testing.T, job jobs.Job, cfg jobs.Config) jobs.Report {
	t.Helper()
	report, err := jobs.Run(t.Context(), job, cfg, jobs.Deps{})
	require.NoErrorf(t, err, "%s", job)
	return report
}
