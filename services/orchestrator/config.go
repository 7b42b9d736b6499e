package orchestrator

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator/internal/operatorapi"
	"github.com/kyma-project/keb/services/orchestrator/internal/orchestration"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// minKeepArchive is a day longer than the retention of facts, so that a reader that missed all facts can still ask.
const minKeepArchive = event.FactsKept + 24*time.Hour

// Config contains the settings of an orchestrator, which are read from the environment. Code starts from service.Defaults, and sets
// Database.
type Config struct {
	// Database is the database with the orchestrator's schema.
	Database postgres.Address
	// Encrypted reports whether the operator API has TLS. Cookies are then sent only over TLS.
	Encrypted bool
	// Overlays lists folders with overlay files, in the order in which they are applied. Changed files apply to new operations without a
	// restart.
	Overlays []string `env:"KEB_OVERLAYS"`
	// Processes replaces the built-in process definitions, for tests and benchmarks.
	Processes fs.FS `env:"-"`
	// SweepEvery is the longest time between two sweeps, for tests; zero means one second.
	SweepEvery time.Duration `env:"-"`
	// WatchEvery is the interval at which the overlay folders are read, for tests; zero means one second.
	WatchEvery time.Duration `env:"-"`
	// BatchTimeout limits the commit and the publication of a batch of results, requests or due operations. The rest of the batch is
	// processed again later. It is for tests; zero means 10 s.
	BatchTimeout time.Duration `env:"-"`
	// AskWorkersEvery is the interval at which live workers are discovered, for tests; zero means three seconds.
	AskWorkersEvery time.Duration `env:"-"`
	// OrchestrationsEvery is the longest time between two checks of an orchestration with operations in progress, for tests; zero means one
	// second.
	OrchestrationsEvery time.Duration `env:"-"`
	// MaintenancePolicy is a JSON file with maintenance windows for upgrades (docs/operator.md). If it is empty, the maintenance windows of
	// the shoots apply.
	MaintenancePolicy string `env:"KEB_MAINTENANCE_POLICY"`
	// Access configures access to the operator API and the console. The zero value disables access control.
	Access access.Config
	// PublicURL is the address of the operator API as browsers use it. The login by OIDC needs it. If it is https, cookies are sent only
	// over TLS.
	PublicURL string `env:"KEB_OPERATOR_PUBLIC_URL"`
	// Links are templates of links from an operation to other systems, as NAME=URL, separated by blanks (docs/operator.md).
	Links string `env:"KEB_OPERATOR_LINKS"`
	// KeepActions is how long the records of operators' actions are kept.
	KeepActions time.Duration `env:"KEB_ACTIONS_KEEP" envDefault:"2160h"`
	// KeepOperations is how long an operation remains in lists after its end. It is then archived, and can only be read by its ID.
	KeepOperations time.Duration `env:"KEB_OPERATIONS_KEEP" envDefault:"2160h"`
	// KeepArchive is how long an archived operation and an orchestration are kept after their end. It must not be shorter than KeepOperations
	// or eight days. If it is empty, it is two years, or KeepOperations if that is longer.
	KeepArchive time.Duration `env:"KEB_ARCHIVE_KEEP"`
	// WebhookKeys is the keyring that seals the URLs and the secrets of webhooks, "id1:base64key,id2:base64key" (package seal). If it is
	// empty, webhooks are off.
	WebhookKeys string `env:"KEB_WEBHOOK_KEYS"`
	// LocalWebhooks allows webhooks with loopback addresses and http, for tests and local systems.
	LocalWebhooks bool `env:"-"`
	// WebhookPause is the pause after the first failed request to a webhook, for tests; zero means one second.
	WebhookPause time.Duration `env:"-"`
	// LossTimeout is how long to wait for workers before commands that the bus has lost are sent again, for tests; zero means ten seconds.
	LossTimeout time.Duration `env:"-"`
	// SlowAfter is the least duration of an execution that is slow, for tests; zero means ten seconds.
	SlowAfter time.Duration `env:"-"`
	// ArchiveEvery is the interval of archiving, for tests; zero means ten minutes.
	ArchiveEvery time.Duration `env:"-"`
}

// completed sets the fields that only tests set, and the fields that follow from others.
func (c Config) completed() Config {
	if c.Processes == nil {
		c.Processes = processes.FS
	}
	c.WatchEvery = cmp.Or(c.WatchEvery, time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, time.Second)
	c.AskWorkersEvery = cmp.Or(c.AskWorkersEvery, 3*time.Second)
	c.OrchestrationsEvery = cmp.Or(c.OrchestrationsEvery, time.Second)
	c.KeepArchive = cmp.Or(c.KeepArchive, max(2*365*24*time.Hour, c.KeepOperations))
	c.LossTimeout = cmp.Or(c.LossTimeout, 10*time.Second)
	c.BatchTimeout = cmp.Or(c.BatchTimeout, 10*time.Second)
	c.SlowAfter = cmp.Or(c.SlowAfter, 10*time.Second)
	c.ArchiveEvery = cmp.Or(c.ArchiveEvery, 10*time.Minute)
	c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	return c
}

// Validate reports every invalid field.
func (c Config) Validate() error {
	problems := []error{c.Database.Validate()}
	problems = append(problems, service.Positive("KEB_ACTIONS_KEEP", c.KeepActions), service.Positive("KEB_OPERATIONS_KEEP", c.KeepOperations))
	if _, err := loadPolicy(c.MaintenancePolicy); err != nil {
		problems = append(problems, fmt.Errorf("KEB_MAINTENANCE_POLICY: %w", err))
	}
	problems = append(problems, c.validateAccess()...)
	if _, err := operatorapi.ParseLinks(c.Links); err != nil {
		problems = append(problems, fmt.Errorf("KEB_OPERATOR_LINKS: %w", err))
	}
	if _, err := c.webhookKeys(); err != nil {
		problems = append(problems, err)
	}
	switch full := c.completed(); {
	case full.KeepArchive < minKeepArchive:
		problems = append(problems, fmt.Errorf("KEB_ARCHIVE_KEEP: %s: must not be shorter than %s: a broker that missed the end of an operation"+
			" requests it again, and without the archive it would run a second time", c.KeepArchive, minKeepArchive))
	case full.KeepArchive < full.KeepOperations:
		problems = append(problems, fmt.Errorf("KEB_ARCHIVE_KEEP: %s: must not be shorter than KEB_OPERATIONS_KEEP, which is %s",
			c.KeepArchive, full.KeepOperations))
	}
	if err := c.completed().validateProcesses(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (c Config) validateAccess() []error {
	var problems []error
	if err := c.Access.Validate(); err != nil {
		problems = append(problems, err)
	}
	u, err := url.Parse(c.PublicURL)
	if c.PublicURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil) {
		problems = append(problems, errors.New("KEB_OPERATOR_PUBLIC_URL: must be a URL without a path, such as https://keb.example.org"))
	}
	return problems
}

// files returns the process files and the overlay folders.
func (c Config) files() (builtIn []process.File, folders []fs.FS, err error) {
	if builtIn, err = process.ReadFiles(c.Processes); err != nil {
		return nil, nil, fmt.Errorf("load processes: %w", err)
	}
	for _, dir := range c.Overlays {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, nil, fmt.Errorf("KEB_OVERLAYS: %q is not a readable folder", dir)
		}
		folders = append(folders, process.Named(dir, os.DirFS(dir)))
	}
	return builtIn, folders, nil
}

func (c Config) validateProcesses() error {
	_, folders, err := c.files()
	if err != nil {
		return err
	}
	if _, err := process.Load(c.Processes, folders...); err != nil {
		return fmt.Errorf("load processes: %w", err)
	}
	return nil
}

// loadPolicy returns nil if the path is empty.
func loadPolicy(path string) (*orchestration.Policy, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := orchestration.ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}
