package avs

import (
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Config is the configuration of the worker.
type Config struct {
	provisioner.ClientConfig
	// URL is the address of the evaluations.
	URL          string        `env:"KEB_AVS_URL" envDefault:"http://127.0.0.1:8090/avs/api/v2/evaluationmetadata"`
	TokenURL     string        `env:"KEB_AVS_TOKEN_URL" envDefault:"http://127.0.0.1:8090/avs/oauth2/token"`
	ClientID     string        `env:"KEB_AVS_CLIENT_ID" envDefault:"keb"`
	ClientSecret string        `env:"KEB_AVS_CLIENT_SECRET"`
	Username     string        `env:"KEB_AVS_USERNAME" envDefault:"keb"`
	Password     string        `env:"KEB_AVS_PASSWORD" envDefault:"keb"`
	Timeout      time.Duration `env:"KEB_AVS_TIMEOUT" envDefault:"30s"`

	// Service is the service that evaluations belong to; empty means their own name.
	Service string `env:"KEB_AVS_SERVICE"`
	// Internal, External and Trial place the evaluations; Trial is for the internal ones of trial and free
	// instances, and used only when it is complete.
	Internal Place `envPrefix:"KEB_AVS_INTERNAL_"`
	External Place `envPrefix:"KEB_AVS_EXTERNAL_"`
	Trial    Place `envPrefix:"KEB_AVS_TRIAL_"`

	// TagsEnabled turns AVS_Tags on. The class ids say what each tag means.
	TagsEnabled     bool          `env:"KEB_AVS_TAGS_ENABLED" envDefault:"true"`
	ShootTagClass   int           `env:"KEB_AVS_TAG_CLASS_SHOOT" envDefault:"1"`
	SeedTagClass    int           `env:"KEB_AVS_TAG_CLASS_SEED" envDefault:"2"`
	RegionTagClass  int           `env:"KEB_AVS_TAG_CLASS_REGION" envDefault:"3"`
	RetryInterval   time.Duration `env:"KEB_AVS_RETRY_INTERVAL" envDefault:"30s"`
	CleanUpInterval time.Duration `env:"KEB_AVS_CLEAN_UP_INTERVAL" envDefault:"10s"`
	RuntimeInterval time.Duration `env:"KEB_AVS_RUNTIME_INTERVAL" envDefault:"1m"`
}

// Place is where an evaluation belongs. The zero value leaves it to the service.
type Place struct {
	TesterAccessID int64 `env:"TESTER_ACCESS_ID"`
	GroupID        int64 `env:"GROUP_ID"`
	ParentID       int64 `env:"PARENT_ID"`
}

func (p Place) complete() bool { return p.TesterAccessID != 0 && p.GroupID != 0 && p.ParentID != 0 }

// Validate names every field that cannot work.
func (c Config) Validate() error {
	errs := []error{
		extclient.CheckURL("KEB_AVS_URL", c.URL), extclient.CheckURL("KEB_AVS_TOKEN_URL", c.TokenURL),
		extclient.CheckURL("KEB_PROVISIONER_URL", c.ProvisionerURL),
	}
	for name, d := range map[string]time.Duration{
		"KEB_AVS_RETRY_INTERVAL": c.RetryInterval, "KEB_AVS_CLEAN_UP_INTERVAL": c.CleanUpInterval, "KEB_AVS_RUNTIME_INTERVAL": c.RuntimeInterval,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s is %s: want more than 0", name, d))
		}
	}
	return errors.Join(errs...)
}
