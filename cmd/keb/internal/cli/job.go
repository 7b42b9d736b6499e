package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/cmd/keb/internal/up"
	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/jobs"
)

func newJob(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job NAME",
		Short: "Run a job once: " + jobNames(),
		Long: `Run a job once against a running system, and print its report. keb up runs all jobs periodically; on Kubernetes a
CronJob runs the command "jobs" with the same flags. The exit code is 0 if nothing failed.`,
		Example: "  keb job deprovision-retrigger --dry-run\n  keb job trial-expiry --plans trial,free -o json",
		Args:    jobArgs,
		// Called only without the name of a job.
		RunE: func(*cobra.Command, []string) error {
			return usageError("the name of a job is missing: use one of %s", jobNames())
		},
	}
	for _, job := range []struct {
		name jobs.Job
		does string
	}{
		{jobs.DeprovisionRetrigger, "Retry deprovisionings that ended with incomplete steps"},
		{jobs.TrialExpiry, "Expire instances of the plans trial and free when their time is over"},
		{jobs.SubaccountCleanup, "Deprovision the instances of deleted sub-accounts, found by the v2 events of the cloud inventory"},
	} {
		cmd.AddCommand(newOneJob(o, job.name, job.does))
	}
	return cmd
}

func jobArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if _, err := jobs.Find(args[0]); err != nil {
		return usageError("%v", err)
	}
	return nil
}

func jobNames() string { return strings.Join(texts(jobs.All()), ", ") }

// impatient is the pause before a call is repeated. It is short because a user waits for the command.
const impatient = 300 * time.Millisecond

func newOneJob(o *options, job jobs.Job, does string) *cobra.Command {
	var cfg jobs.Config
	// A problem in the environment must not stop other commands.
	broken := service.LoadEnv(&cfg)
	cmd := &cobra.Command{
		Use:   string(job),
		Short: does,
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if broken != nil {
				return usageError("%v", broken)
			}
			if err := o.complete(&cfg, cmd); err != nil {
				return err
			}
			if err := cfg.Validate(job); err != nil {
				return usageError("%v", err)
			}
			transport, err := o.transport()
			if err != nil {
				return err
			}
			report, err := jobs.Run(cmd.Context(), job, cfg, jobs.Deps{Broker: transport})
			if errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%w; is keb up running?", err)
			}
			if o.json() {
				return errors.Join(err, report.Err(), printJSON(o.Out, report))
			}
			return errors.Join(err, report.Err(), report.Print(o.Out))
		},
	}
	cmd.Flags().AddGoFlagSet(cfg.Flags(job))
	return cmd
}

// complete sets the values that neither the environment nor the flags of the job set, from the flags of keb.
func (o *options) complete(cfg *jobs.Config, cmd *cobra.Command) error {
	broker, err := operator.BaseURL(o.address(o.osbAddr))
	if err != nil {
		return usageError("OSB API: %v", err)
	}
	landscape, err := operator.BaseURL(o.landscapeAddr)
	if err != nil {
		return usageError("landscape: %v", err)
	}
	cfg.BrokerURL, cfg.User, cfg.Password = broker, o.user, o.password
	for _, d := range []struct {
		variable, flag, value string
		into                  *string
	}{
		{"KEB_CIS_URL", "cis-url", landscape + "/cis", &cfg.CISURL},
		{"KEB_CIS_TOKEN_URL", "cis-token-url", landscape + "/cis/oauth/token", &cfg.CISTokenURL},
		{"KEB_CIS_CLIENT_ID", "", "keb", &cfg.CISClientID},
		{"KEB_CIS_CLIENT_SECRET", "", "keb", &cfg.CISClientSecret},
	} {
		if os.Getenv(d.variable) == "" && (d.flag == "" || !cmd.Flags().Changed(d.flag)) {
			*d.into = d.value
		}
	}
	cfg.RetryPause = impatient
	return nil
}

// jobTime is how often keb up runs one job.
type jobTime struct {
	flag, variable, does string
	every                *time.Duration
}

type allJobTimes []jobTime

func jobTimes(t *up.JobTimes) allJobTimes {
	return allJobTimes{
		{"retrigger-every", "KEB_RETRIGGER_EVERY", "how often incomplete deprovisionings are retried", &t.DeprovisionRetrigger},
		{"expiry-every", "KEB_EXPIRY_EVERY", "how often expired trials are searched for", &t.TrialExpiry},
		{"cleanup-every", "KEB_CLEANUP_EVERY", "how often instances of deleted sub-accounts are searched for", &t.SubaccountCleanup},
	}
}

func (times allJobTimes) register(cmd *cobra.Command) {
	for _, t := range times {
		cmd.Flags().DurationVar(t.every, t.flag, *t.every, fmt.Sprintf("%s; 0 means never (%s)", t.does, t.variable))
	}
}

// fromEnv reads the times that no flag sets from the environment.
func (times allJobTimes) fromEnv(cmd *cobra.Command) error {
	for _, t := range times {
		text := os.Getenv(t.variable)
		if text == "" || cmd.Flags().Changed(t.flag) {
			continue
		}
		every, err := time.ParseDuration(text)
		if err != nil {
			return usageError("%s=%q is not a duration such as 5m; 0 means never", t.variable, text)
		}
		*t.every = every
	}
	return nil
}
