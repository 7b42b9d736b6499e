// Package jobs is the work that nobody asks for, and that has to be done from time to time: it retriggers deprovisionings that
// ended without some of their steps, lets trials expire, and takes away the runtimes of deleted sub-accounts
// (docs/contracts/broker.md#jobs). Each job looks what there is to do, does it through the APIs of the broker, and reports. A job
// keeps nothing: run again after a crash, or twice at once, it finds what is left.
package jobs

import (
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
	"github.com/kyma-project/keb/services/jobs/internal/retrigger"
	"github.com/kyma-project/keb/services/jobs/internal/retry"
	"github.com/kyma-project/keb/services/jobs/internal/subaccountcleanup"
	"github.com/kyma-project/keb/services/jobs/internal/trialexpiry"
)

// Job is a job by its name.
type Job string

// The jobs.
const (
	// DeprovisionRetrigger takes up deprovisionings again that ended without some of their steps.
	DeprovisionRetrigger Job = retrigger.Name
	// TrialExpiry lets instances of the plans trial and free expire when their time is over.
	TrialExpiry Job = trialexpiry.Name
	// SubaccountCleanup takes away the instances of deleted sub-accounts.
	SubaccountCleanup Job = subaccountcleanup.Name
)

// All is every job.
func All() []Job { return []Job{DeprovisionRetrigger, TrialExpiry, SubaccountCleanup} }

// Report is what a job did.
type Report = batch.Report

// Failure is an instance for which a job could not do its work, with the reason.
type Failure = batch.Failure

// Deps are what jobs need besides their configuration; all are optional.
type Deps struct {
	Log *slog.Logger
	// Registerer gets the metrics keb_external_* of the calls.
	Registerer prometheus.Registerer
	// Broker is the transport to the broker, in place of one with the files of Config.BrokerTLS.
	Broker http.RoundTripper
	// Now is the clock, and time.Now if nil.
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

// Run runs a job once. The report tells what was done, also when the error is not nil: that says why the job could not begin or did
// not come to its end. What failed for single instances is in the report only (Report.Err).
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
	cis  *cis.Client // of the job that needs it
}

func newRunner(job Job, cfg Config, deps Deps) (*runner, error) {
	if err := cfg.Validate(job); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	r := &runner{job: job, cfg: cfg, deps: deps.withDefaults()}
	again := retry.Policy{More: cfg.Retries, Pause: cfg.RetryPause}
	external := extclient.Deps{Registerer: r.deps.Registerer, Now: r.deps.Now, Log: r.deps.Log}
	agent := "keb-job/" + string(job)
	if job == SubaccountCleanup {
		agent = subaccountcleanup.UserAgent
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
			Timeout: cfg.RequestTimeout, Retry: again, Pause: cfg.CISPause,
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
		report, err = trialexpiry.Run(ctx, opts, r.cfg.ages(), r.api, r.deps.Now)
	case SubaccountCleanup:
		report, err = subaccountcleanup.Run(ctx, opts, r.cis, r.api)
	case DeprovisionRetrigger:
		report, err = retrigger.Run(ctx, opts, r.api)
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
