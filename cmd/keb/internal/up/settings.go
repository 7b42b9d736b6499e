package up

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/jobs"
	"github.com/kyma-project/keb/services/orchestrator"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
)

// settings holds the configuration of all parts. Each part reads the same variables as its own process.
type settings struct {
	LogConfig    service.LogConfig
	Broker       broker.Config
	Orchestrator orchestrator.Config
	Jobs         jobs.Config
	Landscape    landscape.Config
	Worker       worker.Limits

	// API configures the OSB and the operator API. Metrics serves metrics and health next to the operator API.
	API     service.API
	Metrics service.Metrics

	// Services are the step workers.
	Services []stepworkers.Service
}

// ownDatabase is the placeholder for the address of the server in the data folder until it has started.
const ownDatabase = "postgres://own-server/keb"

// ownsDatabase reports whether keb up starts a Postgres itself.
func (s settings) ownsDatabase() bool { return s.Orchestrator.Database.URL == ownDatabase }

// places holds the URLs of the parts of this process, and their common keyring.
type places struct {
	osb, operator, landscape string
	keys                     string
	// registry collects the metrics of the workers' calls; nil means none.
	registry prometheus.Registerer
}

// credential is the default user, password, client id and client secret of the simulated systems and the broker.
const credential = "keb"

// settings loads and validates the configuration. The error names every variable that is invalid or that keb up sets itself.
func (c Config) settings(at places) (settings, error) {
	s, err := c.load(at)
	if err != nil {
		return s, once([]error{err})
	}
	return s, once(s.validate())
}

// load reads the variables of all services. Defaults are those of the services, except for the URLs of the other parts and, with
// Fast, the waits.
func (c Config) load(at places) (settings, error) {
	var s settings
	environment := maps.Clone(c.Environment)
	for _, v := range c.owned(at) {
		delete(environment, v.name)
		delete(environment, v.name+"_FILE")
	}
	if err := service.LoadEnvFrom(&s, environment, c.defaults(at)); err != nil {
		return s, errors.Join(c.checkOwned(at), err)
	}
	s.Broker.SealKeys = cmp.Or(at.keys, "k1:"+seal.NewKey())
	s.Orchestrator.WebhookKeys, s.Orchestrator.LocalWebhooks = s.Broker.SealKeys, true
	s.Jobs.BrokerURL = at.osb
	s.Orchestrator.Encrypted = s.API.TLS.Enabled()
	s.Landscape.DataDir, s.Landscape.ExternalURL = filepath.Join(c.DataDir, "landscape"), at.landscape
	if c.Fast {
		s.Landscape.CleanTime = time.Second
	}
	var err error
	s.Services, err = stepworkers.All(at.landscape, stepworkers.Options{Environment: environment, Fast: c.Fast, Registerer: at.registry})
	return s, errors.Join(c.checkOwned(at), err)
}

// validate runs the checks of the services' main functions.
func (s settings) validate() []error {
	_, wrongLog := service.Logger(nil, s.LogConfig.Format, s.LogConfig.Level)
	problems := []error{
		wrongLog, s.Broker.Validate(), s.Orchestrator.Validate(), s.Landscape.Validate(), s.Worker.Config("keb", "").Validate(),
		s.API.Validate(), s.Metrics.Validate(), tracing.Check(),
	}
	if s.ownsDatabase() && s.Orchestrator.Database.TLS.Enabled() {
		problems = append(problems, errors.New("KEB_DATABASE_CA_FILE, KEB_DATABASE_CERT_FILE, KEB_DATABASE_KEY_FILE: "+
			"require --database-url (KEB_DATABASE_URL); the Postgres of keb up listens on a loopback address without TLS"))
	}
	for _, job := range jobs.All() {
		problems = append(problems, s.Jobs.Validate(job))
	}
	return problems
}

// once joins errors without duplicates, because several services read the same variable.
func once(problems []error) error {
	var different []error
	seen := map[string]bool{}
	for _, p := range problems {
		if p == nil {
			continue
		}
		for line := range strings.SplitSeq(p.Error(), "\n") {
			if !seen[line] {
				seen[line] = true
				different = append(different, errors.New(line))
			}
		}
	}
	return errors.Join(different...)
}

// defaults returns the defaults of keb up, which override those of the services.
func (c Config) defaults(at places) func(name, byTag string) string {
	values := map[string]string{
		"KEB_OSB_USER": credential, "KEB_OSB_PASSWORD": credential,
		"KEB_BROKER_PUBLIC_URL": at.osb, "KEB_OPERATOR_PUBLIC_URL": at.operator,
		"KEB_DATABASE_URL": ownDatabase,
		"KEB_CIS_URL":      at.landscape + "/cis", "KEB_CIS_TOKEN_URL": at.landscape + "/cis/oauth/token",
		"KEB_CIS_CLIENT_ID": credential, "KEB_CIS_CLIENT_SECRET": credential,
	}
	if c.Fast {
		values["KEB_LANDSCAPE_CLUSTER_TIME"], values["KEB_LANDSCAPE_RECONCILE_TIME"] = "0s", "0s"
		// A runtime then takes about a second, so platforms may poll more often.
		values["KEB_OSB_RETRY_AFTER"] = "1s"
	}
	return func(name, byTag string) string { return cmp.Or(values[name], byTag) }
}

// owned is a variable that keb up sets itself.
type owned struct {
	name string
	// value is the value that keb up sets. A variable with the same value is accepted.
	value string
	// instead explains why the variable has no effect, and what to set instead.
	instead string
}

// owned are the variables that keb up sets itself. docs/install.md has the same list.
func (c Config) owned(at places) []owned {
	const (
		nats   = "the NATS of keb up listens on a loopback address, without users and TLS; --nats-addr (KEB_NATS_URL) sets the address"
		folder = "keb up keeps all data in its data folder; set it with --data-dir (KEB_DATA_DIR)"
	)
	keys := fmt.Sprintf("keb up creates its keys at the first start in %s; --data-dir (KEB_DATA_DIR) sets the folder",
		filepath.Join(c.DataDir, keysFile))
	return []owned{
		{"KEB_SEAL_KEYS", at.keys, keys},
		{"KEB_STAGE_KEYS", at.keys, keys},
		{"KEB_WEBHOOK_KEYS", at.keys, keys},
		{"KEB_NATS_USER", "", nats},
		{"KEB_NATS_PASSWORD", "", nats},
		{"KEB_NATS_CA_FILE", "", nats},
		{"KEB_NATS_CERT_FILE", "", nats},
		{"KEB_NATS_KEY_FILE", "", nats},
		{"KEB_NATS_TLS_FIRST", "false", nats},
		{"KEB_BROKER_URL", at.osb, "the jobs of keb up call its own broker; --osb-addr (KEB_OSB_ADDR) sets its address"},
		{"KEB_LANDSCAPE_DATA_DIR", filepath.Join(c.DataDir, "landscape"), folder},
		{"KEB_LANDSCAPE_EXTERNAL_URL", at.landscape, "keb up uses the listening address of its landscape; --landscape-addr (KEB_LANDSCAPE_ADDR) sets it"},
	}
}

// checkOwned reports the variables that differ from the values that keb up sets itself.
func (c Config) checkOwned(at places) error {
	var problems []error
	for _, v := range c.owned(at) {
		name, value := v.name, c.Environment[v.name]
		if path := c.Environment[v.name+"_FILE"]; path != "" && value == "" {
			content, err := os.ReadFile(path)
			if err != nil && at.keys == "" && sameFile(path, filepath.Join(c.DataDir, keysFile)) {
				continue // the first start creates it later
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s_FILE: %w; %s", v.name, err, v.instead))
				continue
			}
			name, value = v.name+"_FILE", strings.TrimSpace(string(content))
		}
		// Keys cannot be compared before they are read.
		unknown := at.keys == "" && slices.Contains([]string{"KEB_SEAL_KEYS", "KEB_STAGE_KEYS", "KEB_WEBHOOK_KEYS"}, v.name)
		if value != "" && value != v.value && !unknown {
			problems = append(problems, fmt.Errorf("%s: is not used with keb up: %s", name, v.instead))
		}
	}
	return errors.Join(problems...)
}

func sameFile(a, b string) bool {
	x, errX := filepath.Abs(a)
	y, errY := filepath.Abs(b)
	return errX == nil && errY == nil && x == y
}
