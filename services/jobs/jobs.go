// Package jobs contains the periodic jobs: they retrigger incomplete deprovisionings, expire trials, and deprovision the runtimes of
// deleted sub-accounts (docs/contracts/broker.md#jobs). Each job finds its instances, processes them through the APIs of the broker, and
// reports the results. A job has no state: it can be repeated after a crash, and two runs at the same time do no harm.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/extclient"
)

// Job is the name of a job.
type Job string

// The jobs.
const (
	// DeprovisionRetrigger runs the skipped steps of deprovisionings again.
	DeprovisionRetrigger Job = "deprovision-retrigger"
	// TrialExpiry expires old instances of the plans trial and free.
	TrialExpiry Job = "trial-expiry"
	// SubaccountCleanup deprovisions the instances of deleted sub-accounts.
	SubaccountCleanup Job = "subaccount-cleanup"
)

// All returns all jobs.
func All() []Job { return []Job{DeprovisionRetrigger, TrialExpiry, SubaccountCleanup} }

// Deps are the optional dependencies of jobs.
type Deps struct {
	Log *slog.Logger
	// Registerer registers the metrics keb_external_* of the calls.
	Registerer prometheus.Registerer
	// Broker is the transport to the broker; default is one with the files of Config.BrokerTLS.
	Broker http.RoundTripper
	// Now returns the time; default time.Now.
	Now func() time.Time
}

func (d Deps) withDefaults() Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return d
}

// Run runs a job once. It returns an error if the job could not begin or complete; the report then contains the results so far. Failures of
// single instances are only in the report (Report.Err).
func Run(ctx context.Context, job Job, cfg Config, deps Deps) (Report, error) {
	r, err := newRunner(job, cfg, deps)
	if err != nil {
		return Report{Job: string(job), DryRun: cfg.DryRun, Failed: []Failure{}}, err
	}
	return r.run(ctx)
}

// runner runs one job any number of times.
type runner struct {
	job    Job
	cfg    Config
	deps   Deps
	broker *client
	cis    *inventory // only for SubaccountCleanup
}

func newRunner(job Job, cfg Config, deps Deps) (*runner, error) {
	if err := cfg.Validate(job); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	r := &runner{job: job, cfg: cfg, deps: deps.withDefaults()}
	retry := extclient.Retry{More: cfg.Retries, Pause: cmp.Or(cfg.RetryPause, 2*time.Second)}
	external := extclient.Deps{Registerer: r.deps.Registerer, Now: r.deps.Now, Log: r.deps.Log}
	agent := "keb-job/" + string(job)
	if job == SubaccountCleanup {
		agent = cleanupAgent
	}
	transport := r.deps.Broker
	var err error
	if transport == nil {
		if transport, err = cfg.BrokerTLS.Transport(brokerTLSPrefix); err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
	}
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, 30*time.Second)
	if r.broker, err = newClient(cfg, agent, retry, transport, external); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	if job == SubaccountCleanup {
		if r.cis, err = newInventory(cfg, retry, external); err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
	}
	return r, nil
}

func (r *runner) run(ctx context.Context) (Report, error) {
	began := r.deps.Now()
	report := Report{Job: string(r.job), DryRun: r.cfg.DryRun, Failed: []Failure{}}
	w := r.work()
	found, err := w.find(ctx)
	if err != nil {
		err = fmt.Errorf("%s: %w", r.job, err)
	} else {
		err = r.process(ctx, w, found, &report)
	}
	if err != nil {
		report.Error = extclient.Sanitize(err.Error())
	}
	for _, f := range report.Failed {
		r.deps.Log.WarnContext(ctx, "job failed for an instance", "job", r.job, "instance_id", f.Instance, "err", f.Reason)
	}
	if err == nil {
		r.deps.Log.InfoContext(ctx, "job ended", "job", r.job, "dry_run", report.DryRun, "found", report.Found, "started", report.Started,
			"completed", report.Completed, "skipped", report.Skipped, "failed", len(report.Failed), "took", r.deps.Now().Sub(began))
	}
	return report, err
}

// process processes the instances, at most cfg.Parallel at the same time. It reports a failure and continues with the other instances. It
// returns an error if the context ends before all instances were processed; the report then contains the results so far.
func (r *runner) process(ctx context.Context, w work, instances []broker.Runtime, report *Report) error {
	report.Found = len(instances)
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next int
	)
	take := func() *broker.Runtime {
		mu.Lock()
		defer mu.Unlock()
		if next == len(instances) || ctx.Err() != nil {
			return nil
		}
		next++
		return &instances[next-1]
	}
	for range min(r.cfg.Parallel, len(instances)) {
		wg.Go(func() {
			for i := take(); i != nil; i = take() {
				o, err := r.one(ctx, w, i)
				mu.Lock()
				report.record(i.InstanceID, o, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(report.Failed, func(a, b Failure) int { return cmp.Compare(a.Instance, b.Instance) })
	if ctx.Err() != nil && next < len(instances) {
		return fmt.Errorf("stopped after %d of %d instances: %w", next, len(instances), context.Cause(ctx))
	}
	return nil
}

// one requests the operation of an instance. With cfg.Wait it waits for the end of the operation.
func (r *runner) one(ctx context.Context, w work, i *broker.Runtime) (outcome, error) {
	operation, err := w.request(ctx, i)
	switch {
	case errors.Is(err, errSettled):
		return skipped, nil
	case err != nil:
		return skipped, err
	case r.cfg.DryRun && operation != "": // it already runs
		return skipped, nil
	case r.cfg.DryRun, !r.cfg.Wait:
		return started, nil
	case operation != "": // otherwise none was needed
		if err := r.broker.await(ctx, i.InstanceID, operation, r.cfg.WaitTimeout); err != nil {
			return started, err
		}
	}
	if w.check != nil {
		return completed, w.check(ctx, i)
	}
	return completed, nil
}
