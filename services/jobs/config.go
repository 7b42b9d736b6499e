package jobs

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

// Config is the configuration of the jobs from the environment; flags override it for one run. Code starts from service.Defaults.
type Config struct {
	// BrokerURL is the base URL of the broker.
	BrokerURL string `env:"KEB_BROKER_URL" envDefault:"http://127.0.0.1:8080"`
	// BrokerTLS has the certificate files for an https URL.
	BrokerTLS tlsfiles.Client `envPrefix:"KEB_BROKER_"`
	// User and Password are the basic credentials for the broker: set both or neither.
	User     string `env:"KEB_OSB_USER"`
	Password string `env:"KEB_OSB_PASSWORD"`
	// BrokerTokenURL enables tokens of the OAuth2 client credentials grant instead of User and Password.
	BrokerTokenURL     string   `env:"KEB_BROKER_TOKEN_URL"`
	BrokerClientID     string   `env:"KEB_BROKER_CLIENT_ID"`
	BrokerClientSecret string   `env:"KEB_BROKER_CLIENT_SECRET"`
	BrokerScopes       []string `env:"KEB_BROKER_SCOPES" envDefault:"broker:write"`

	// DryRun reports the instances without any change.
	DryRun bool `env:"KEB_JOB_DRY_RUN"`
	// Parallel is the number of instances that are processed in parallel, 1 to 100.
	Parallel int `env:"KEB_JOB_PARALLEL" envDefault:"5"`
	// Wait makes the job wait for the end of each operation, at most WaitTimeout.
	Wait        bool          `env:"KEB_JOB_WAIT"`
	WaitTimeout time.Duration `env:"KEB_JOB_WAIT_TIMEOUT" envDefault:"6h"`
	// PollEvery is the interval between two checks of an operation, unless the broker requests another one, of which five seconds are the
	// maximum (docs/contracts/broker.md#jobs). Only tests set it; zero means two seconds.
	PollEvery time.Duration `env:"-"`
	// RequestTimeout is the timeout of one request, for tests; zero means 30 s.
	RequestTimeout time.Duration `env:"-"`
	// Retries is the number of retries after a temporary error (docs/contracts/cis.md).
	Retries int `env:"KEB_JOB_RETRIES" envDefault:"3"`
	// RetryPause is the delay between two retries. The command line and tests shorten it; zero means two seconds.
	RetryPause time.Duration `env:"-"`

	// ExpiryPlans are the plans whose instances expire: trial, free.
	ExpiryPlans []string `env:"KEB_EXPIRY_PLANS" envDefault:"trial"`
	// TrialAge and FreeAge are the minimum ages of an instance that expires (docs/contracts/broker.md#jobs). The broker checks the age, too.
	TrialAge time.Duration `env:"KEB_TRIAL_LIFETIME" envDefault:"336h"`
	FreeAge  time.Duration `env:"KEB_FREE_LIFETIME" envDefault:"720h"`

	// CISVersion is the version of the cloud inventory's API: v1.0 or v2.0.
	CISVersion string `env:"KEB_CIS_VERSION" envDefault:"v2.0"`
	// CISURL is the URL prefix of /events/v1 of the cloud inventory, or of /public/rest/v2/events of v1.0.
	CISURL          string `env:"KEB_CIS_URL" envDefault:"http://127.0.0.1:8090/cis"`
	CISTokenURL     string `env:"KEB_CIS_TOKEN_URL" envDefault:"http://127.0.0.1:8090/cis/oauth/token"`
	CISClientID     string `env:"KEB_CIS_CLIENT_ID"`
	CISClientSecret string `env:"KEB_CIS_CLIENT_SECRET"`
	// CISPause is the pause between two pages. Only tests set it; zero means 200 ms.
	CISPause time.Duration `env:"-"`
}

// The plans whose instances can expire.
const (
	planTrial = "trial"
	planFree  = "free"
)

// brokerTLSPrefix is the prefix of the variables of Config.BrokerTLS.
const brokerTLSPrefix = "KEB_BROKER_"

const (
	maxParallel = 100
	maxRetries  = 20
)

// LogValue omits the secrets.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("broker_url", c.BrokerURL), slog.String("user", c.User), slog.String("broker_token_url", c.BrokerTokenURL),
		slog.String("broker_client_id", c.BrokerClientID), slog.Bool("dry_run", c.DryRun), slog.Int("parallel", c.Parallel),
		slog.Bool("wait", c.Wait), slog.Any("expiry_plans", c.ExpiryPlans), slog.Duration("trial_age", c.TrialAge),
		slog.Duration("free_age", c.FreeAge), slog.String("cis_url", c.CISURL), slog.String("cis_client_id", c.CISClientID),
	)
}

// Validate reports every invalid setting of a job. It uses no network.
func (c Config) Validate(job Job) error {
	_, unknown := Find(string(job))
	errs := []error{unknown, extclient.CheckURL("--broker-url (KEB_BROKER_URL)", c.BrokerURL), c.BrokerTLS.Validate(brokerTLSPrefix)}
	if (c.User == "") != (c.Password == "") {
		errs = append(errs, errors.New("KEB_OSB_USER and KEB_OSB_PASSWORD: set both or neither"))
	}
	if c.BrokerTokenURL != "" {
		errs = append(errs, extclient.CheckURL("KEB_BROKER_TOKEN_URL", c.BrokerTokenURL))
		if c.BrokerClientID == "" || c.BrokerClientSecret == "" {
			errs = append(errs, errors.New("KEB_BROKER_TOKEN_URL needs KEB_BROKER_CLIENT_ID and KEB_BROKER_CLIENT_SECRET"))
		}
	}
	if c.Parallel < 1 || c.Parallel > maxParallel {
		errs = append(errs, fmt.Errorf("--parallel (KEB_JOB_PARALLEL): %d is not allowed, use 1 to %d", c.Parallel, maxParallel))
	}
	if c.Retries < 0 || c.Retries > maxRetries {
		errs = append(errs, fmt.Errorf("KEB_JOB_RETRIES: %d is not allowed, use 0 to %d", c.Retries, maxRetries))
	}
	errs = append(errs,
		service.Positive("--wait-timeout (KEB_JOB_WAIT_TIMEOUT)", c.WaitTimeout))
	switch job {
	case TrialExpiry:
		errs = append(errs, c.validateExpiry()...)
	case SubaccountCleanup:
		errs = append(errs,
			extclient.CheckURL("--cis-url (KEB_CIS_URL)", c.CISURL), extclient.CheckURL("--cis-token-url (KEB_CIS_TOKEN_URL)", c.CISTokenURL))
		if c.CISVersion != cisV1 && c.CISVersion != cisV2 {
			errs = append(errs, fmt.Errorf("KEB_CIS_VERSION: %q is not allowed, use one of [%s %s]", c.CISVersion, cisV1, cisV2))
		}
		if c.CISClientID == "" || c.CISClientSecret == "" {
			errs = append(errs, errors.New("KEB_CIS_CLIENT_ID and KEB_CIS_CLIENT_SECRET: both are required"))
		}
	case DeprovisionRetrigger:
	}
	return errors.Join(errs...)
}

func (c Config) validateExpiry() []error {
	var errs []error
	if len(c.ExpiryPlans) == 0 {
		errs = append(errs, errors.New("--plans (KEB_EXPIRY_PLANS): is empty, use trial, free or both"))
	}
	for _, plan := range c.ExpiryPlans {
		if plan != planTrial && plan != planFree {
			errs = append(errs, fmt.Errorf("--plans (KEB_EXPIRY_PLANS): plan %q does not expire, use trial, free or both", plan))
		}
	}
	return append(errs, service.Positive("--trial-age (KEB_TRIAL_LIFETIME)", c.TrialAge), service.Positive("--free-age (KEB_FREE_LIFETIME)", c.FreeAge))
}

// ages returns the minimum age of an instance by plan.
func (c Config) ages() map[string]time.Duration {
	all := map[string]time.Duration{planTrial: c.TrialAge, planFree: c.FreeAge}
	ages := map[string]time.Duration{}
	for _, plan := range c.ExpiryPlans {
		ages[plan] = all[plan]
	}
	return ages
}

// Find returns the job of a name. Its error contains the valid names.
func Find(name string) (Job, error) {
	if slices.Contains(All(), Job(name)) {
		return Job(name), nil
	}
	names := make([]string, 0, len(All()))
	for _, job := range All() {
		names = append(names, string(job))
	}
	return "", fmt.Errorf("there is no job %q; use one of %s", name, strings.Join(names, ", "))
}

// Flags returns the flags of a job. Parsing them changes c, whose values are the defaults. Secrets are not flags, because other users of the
// machine could see them in the list of processes. The caller adds the flags for the address of the broker.
func (c *Config) Flags(job Job) *flag.FlagSet {
	flags := flag.NewFlagSet(string(job), flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&c.DryRun, "dry-run", c.DryRun, "report the instances without any change (KEB_JOB_DRY_RUN)")
	flags.Var((*number)(&c.Parallel), "parallel", "number of `instances` that are processed in parallel, 1 to 100 (KEB_JOB_PARALLEL)")
	flags.BoolVar(&c.Wait, "wait", c.Wait, "wait for the end of each operation (KEB_JOB_WAIT)")
	flags.Var((*duration)(&c.WaitTimeout), "wait-timeout", "maximum `duration` of --wait for one operation (KEB_JOB_WAIT_TIMEOUT)")
	switch job {
	case TrialExpiry:
		flags.Var((*list)(&c.ExpiryPlans), "plans", "`plans` whose instances expire: trial, free or both, separated by commas (KEB_EXPIRY_PLANS)")
		flags.Var((*duration)(&c.TrialAge), "trial-age", "minimum `age` of an instance of plan trial (KEB_TRIAL_LIFETIME)")
		flags.Var((*duration)(&c.FreeAge), "free-age", "minimum `age` of an instance of plan free (KEB_FREE_LIFETIME)")
	case SubaccountCleanup:
		flags.StringVar(&c.CISURL, "cis-url", c.CISURL, "base `URL` of the cloud inventory's events (KEB_CIS_URL)")
		flags.StringVar(&c.CISTokenURL, "cis-token-url", c.CISTokenURL, "`URL` of its tokens (KEB_CIS_TOKEN_URL)")
	case DeprovisionRetrigger:
	}
	return flags
}

// The values of package flag report only "parse error" for an invalid text; these report the valid format.
type (
	number   int
	duration time.Duration
	list     []string
)

func (n *number) String() string { return strconv.Itoa(int(*n)) }

func (n *number) Set(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("want a whole number")
	}
	*n = number(v)
	return nil
}

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a duration such as 30m or 336h")
	}
	*d = duration(v)
	return nil
}

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(text string) error {
	*l = nil
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			*l = append(*l, item)
		}
	}
	return nil
}
