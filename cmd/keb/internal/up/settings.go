package up

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

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

// settings are what the parts run with: each is configured as its own process is, from the same variables.
type settings struct {
	LogConfig    service.LogConfig
	Broker       broker.Config
	Orchestrator orchestrator.Config
	Jobs         jobs.Config
	Landscape    landscape.Config
	Worker       worker.Limits

	// API is that of the OSB and the operator API, and Metrics serves metrics and health besides the operator API.
	API     service.API
	Metrics service.Metrics

	// Services are the step workers.
	Services []stepworkers.Service
}

// ownDatabase stands for the server in the data folder until that has started.
const ownDatabase = "postgres://own-server/keb"

// ownsDatabase reports whether keb up starts a Postgres itself.
func (s settings) ownsDatabase() bool { return s.Orchestrator.Database.URL == ownDatabase }

// places are where the parts of this process are, as URLs, and the keyring that they share.
type places struct {
	osb, operator, landscape string
	keys                     string
	// registry gets the metrics of the workers' calls; nil means none.
	registry prometheus.Registerer
}

// credential is the user, password, client id and secret that the simulated systems and the broker take unless a variable sets another.
const credential = "keb"

// settings are those of load, if they are valid. The error names every variable that is wrong, or that is not the user's to set.
func (c Config) settings(at places) (settings, error) {
	s, err := c.load(at)
	if err != nil {
		return s, once([]error{err})
	}
	return s, once(s.validate())
}

// load reads the variables of all services. What is not set is as it is in the services, but for the places of the other parts and, with
// Fast, for waits.
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
	s.Jobs.BrokerURL = at.osb
	s.Orchestrator.Encrypted = s.API.TLS.Enabled()
	s.Landscape.DataDir, s.Landscape.ExternalURL = filepath.Join(c.DataDir, "landscape"), at.landscape
	var err error
	s.Services, err = stepworkers.All(at.landscape, stepworkers.Options{Environment: environment, Fast: c.Fast, Registerer: at.registry})
	return s, errors.Join(c.checkOwned(at), err)
}

// validate is what the mains of the services check. Step workers have been made by then.
func (s settings) validate() []error {
	_, wrongLog := service.Logger(nil, s.LogConfig.Format, s.LogConfig.Level)
	problems := []error{
		wrongLog, s.Broker.Validate(), s.Orchestrator.Validate(), s.Landscape.Validate(), s.Worker.Config("keb", "").Validate(),
		s.API.Validate(), s.Metrics.Validate(), tracing.Check(),
	}
	if s.ownsDatabase() && s.Orchestrator.Database.TLS.Enabled() {
		problems = append(problems, errors.New("KEB_DATABASE_CA_FILE, KEB_DATABASE_CERT_FILE, KEB_DATABASE_KEY_FILE: "+
			"are for a Postgres of yours, which --database-url (KEB_DATABASE_URL) names; that of keb up listens on a loopback address, without TLS"))
	}
	for _, job := range jobs.All() {
		problems = append(problems, s.Jobs.Validate(job))
	}
	return problems
}

// once joins errors, and leaves out what several services say about the same variable.
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

// defaults are those of keb up, in place of those of the services.
func (c Config) defaults(at places) func(name, byTag string) string {
	values := map[string]string{
		"KEB_OSB_USER": credential, "KEB_OSB_PASSWORD": credential,
		"KEB_BROKER_PUBLIC_URL": at.osb, "KEB_OPERATOR_PUBLIC_URL": at.operator,
		"KEB_DATABASE_URL": ownDatabase,
		"KEB_CIS_URL":      at.landscape + "/cis", "KEB_CIS_TOKEN_URL": at.landscape + "/cis/oauth/token",
		"KEB_CIS_CLIENT_ID": credential, "KEB_CIS_CLIENT_SECRET": credential,
	}
	if c.Fast {
		values["KEB_LANDSCAPE_CLUSTER_TIME"], values["KEB_LANDSCAPE_RECONCILE_TIME"], values["KEB_LANDSCAPE_CLEAN_TIME"] = "0s", "0s", "1s"
		// A runtime takes a second then, so platforms may ask more often.
		values["KEB_OSB_RETRY_AFTER"] = "1s"
	}
	return func(name, byTag string) string { return cmp.Or(values[name], byTag) }
}

// owned is a variable that keb up sets itself.
type owned struct {
	name string
	// value is what keb up sets; a variable that says the same is in order.
	value string
	// instead says why it is not the user's to set, and what is.
	instead string
}

// owned are the variables that keb up sets itself. docs/install.md has the same list.
func (c Config) owned(at places) []owned {
	const (
		nats   = "the NATS of keb up listens on a loopback address, without users and TLS; --nats-addr (KEB_NATS_URL) says where"
		folder = "keb up keeps all data in its data folder; choose that with --data-dir (KEB_DATA_DIR)"
	)
	keys := fmt.Sprintf("keb up makes its keys at the first start; they are in %s, and --data-dir (KEB_DATA_DIR) says in which folder",
		filepath.Join(c.DataDir, keysFile))
	return []owned{
		{"KEB_SEAL_KEYS", at.keys, keys},
		{"KEB_STAGE_KEYS", at.keys, keys},
		{"KEB_NATS_USER", "", nats},
		{"KEB_NATS_PASSWORD", "", nats},
		{"KEB_NATS_CA_FILE", "", nats},
		{"KEB_NATS_CERT_FILE", "", nats},
		{"KEB_NATS_KEY_FILE", "", nats},
		{"KEB_NATS_TLS_FIRST", "false", nats},
		{"KEB_BROKER_URL", at.osb, "the jobs of keb up ask its own broker; --osb-addr (KEB_OSB_ADDR) says where that listens"},
		{"KEB_LANDSCAPE_DATA_DIR", filepath.Join(c.DataDir, "landscape"), folder},
		{"KEB_LANDSCAPE_EXTERNAL_URL", at.landscape, "the landscape of keb up is reached where it listens; --landscape-addr (KEB_LANDSCAPE_ADDR) says where"},
	}
}

// checkOwned reports the variables that contradict what keb up sets itself.
func (c Config) checkOwned(at places) error {
	var problems []error
	for _, v := range c.owned(at) {
		name, value := v.name, c.Environment[v.name]
		if path := c.Environment[v.name+"_FILE"]; path != "" && value == "" {
			content, err := os.ReadFile(path)
			if err != nil && at.keys == "" && sameFile(path, filepath.Join(c.DataDir, keysFile)) {
				continue // the first start is about to make it
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s_FILE: %w; %s", v.name, err, v.instead))
				continue
			}
			name, value = v.name+"_FILE", strings.TrimSpace(string(content))
		}
		// Before the keys are read there is nothing to compare with.
		unknown := at.keys == "" && (v.name == "KEB_SEAL_KEYS" || v.name == "KEB_STAGE_KEYS")
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
