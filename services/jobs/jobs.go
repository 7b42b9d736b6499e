// Package jobs contains the periodic jobs: they retrigger incomplete deprovisionings, expire trials, and deprovision the runtimes of
// deleted sub-accounts (docs/contracts/broker.md#jobs). Each job finds its instances, processes them through the APIs of the broker, and
// reports the results. A job has no state: it can be repeated after a crash, and two runs at the same time do no harm.
package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/services/jobs/internal/batch"
	"github.com/kyma-project/keb/services/jobs/internal/broker"
	"github.com/kyma-project/keb/services/jobs/internal/cis"
)

// Job is the name of a job.
type Job string

// The jobs.
const (
	// DeprovisionRetrigger runs the skipped steps of deprovisionings again.
	DeprovisionRetrigger Job = batch.RetriggerName
	// TrialExpiry expires old instances of the plans trial and free.
	TrialExpiry Job = batch.TrialExpiryName
	// SubaccountCleanup deprovisions the instances of deleted sub-accounts.
	SubaccountCleanup Job = batch.CleanupName
)

// All returns all jobs.
func All() []Job { return []Job{DeprovisionRetrigger, TrialExpiry, SubaccountCleanup} }

// Report is the result of a job.
type Report = batch.Report

// Failure is an instance that a job could not process, with the reason.
type Failure = batch.Failure

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
	job  Job
	cfg  Config
	deps Deps
	api  *broker.Client
	cis  *cis.Client // only for SubaccountCleanup
}

func newRunner(job Job, cfg Config, deps Deps) (*runner, error) {
	if err := cfg.Validate(job); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	r := &runner{job: job, cfg: cfg, deps: deps.withDefaults()}
	again := extclient.Retry{More: cfg.Retries, Pause: cmp.Or(cfg.RetryPause, 2*time.Second)}
	external := extclient.Deps{Registerer: r.deps.Registerer, Now: r.deps.Now, Log: r.deps.Log}
	agent := "keb-job/" + string(job)
	if job == SubaccountCleanup {
		agent = batch.UserAgent
	}
	toBroker := r.deps.Broker
	if toBroker == nil {
		transport, err := cfg.BrokerTLS.Transport(brokerTLSPrefix)
		if err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
		toBroker = transport
	}
	var err error
	r.api, err = broker.New(broker.Config{
		URL: cfg.BrokerURL, User: cfg.User, Password: cfg.Password, TokenURL: cfg.BrokerTokenURL, ClientID: cfg.BrokerClientID,
		ClientSecret: cfg.BrokerClientSecret, Scopes: cfg.BrokerScopes, UserAgent: agent, Timeout: cfg.RequestTimeout, Retry: again,
		PollEvery: cfg.PollEvery, Transport: toBroker,
	}, external)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	if job == SubaccountCleanup {
		r.cis, err = cis.New(cis.Config{
			Version: cfg.CISVersion, URL: cfg.CISURL, TokenURL: cfg.CISTokenURL, ClientID: cfg.CISClientID, ClientSecret: cfg.CISClientSecret,
			Timeout: cfg.RequestTimeout, Retry: again, Pause: cmp.Or(cfg.CISPause, 200*time.Millisecond),
		}, external)
		if err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
	}
	return r, nil
}

func (r *runner) run(ctx context.Context) (Report, error) {
	opts := batch.Options{DryRun: r.cfg.DryRun, Wait: r.cfg.Wait, WaitTimeout: r.cfg.WaitTimeout, Parallel: r.cfg.Parallel}
	began := r.deps.Now()
	var report Report
	var err error
	switch r.job {
	case TrialExpiry:
		report, err = batch.ExpireTrials(ctx, opts, r.cfg.ages(), r.api, r.deps.Now)
	case SubaccountCleanup:
		report, err = batch.CleanUp(ctx, opts, r.cis, r.api)
	case DeprovisionRetrigger:
		report, err = batch.Retrigger(ctx, opts, r.api)
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
