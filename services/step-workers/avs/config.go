package avs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// Config is the configuration of the worker.
type Config struct {
	provisioner.ClientConfig
	// URL is the address of the evaluations. Without it the worker does not call AvS and skips its steps.
	URL          string        `env:"KEB_AVS_URL"`
	TokenURL     string        `env:"KEB_AVS_TOKEN_URL"`
	ClientID     string        `env:"KEB_AVS_CLIENT_ID" envDefault:"keb"`
	ClientSecret string        `env:"KEB_AVS_CLIENT_SECRET"`
	Username     string        `env:"KEB_AVS_USERNAME" envDefault:"keb"`
	Password     string        `env:"KEB_AVS_PASSWORD" envDefault:"keb"`
	Timeout      time.Duration `env:"KEB_AVS_TIMEOUT" envDefault:"30s"`
	// LookUp enables the search for an evaluation by its name before it is created, so that a lost answer leaves no orphan. AvS must
	// serve GET with the query parameter name; the known contract has no such call.
	LookUp bool `env:"KEB_AVS_LOOK_UP" envDefault:"false"`

	// GroupID and ParentID are the group and the parent of all evaluations; required with a URL.
	GroupID  int64 `env:"KEB_AVS_GROUP_ID"`
	ParentID int64 `env:"KEB_AVS_PARENT_ID"`
	// Internal and External are the settings of one kind of evaluation. KEB_AVS_INTERNAL_TESTER_ACCESS_ID and
	// KEB_AVS_EXTERNAL_TESTER_ACCESS_ID are required with a URL.
	Internal Tester `envPrefix:"KEB_AVS_INTERNAL_"`
	External Tester `envPrefix:"KEB_AVS_EXTERNAL_"`
	// Trial applies to the internal evaluations of trial and free instances, if all three ids are set.
	Trial Place `envPrefix:"KEB_AVS_TRIAL_"`

	// TagsEnabled enables AVS_Tags. The class ids define the meaning of each tag.
	TagsEnabled    bool `env:"KEB_AVS_TAGS_ENABLED" envDefault:"false"`
	ShootTagClass  int  `env:"KEB_AVS_TAG_CLASS_SHOOT" envDefault:"1"`
	SeedTagClass   int  `env:"KEB_AVS_TAG_CLASS_SEED" envDefault:"2"`
	RegionTagClass int  `env:"KEB_AVS_TAG_CLASS_REGION" envDefault:"3"`
	// RetryInterval is the delay after an error; 0 means that of the process file. RuntimeInterval is that after a failed look-up of the runtime.
	RetryInterval   time.Duration `env:"KEB_PACE" envDefault:"0s"`
	RuntimeInterval time.Duration `env:"KEB_PACE" envDefault:"1m"`
}

// Tester has the settings that differ between internal and external evaluations.
type Tester struct {
	TesterAccessID int64 `env:"TESTER_ACCESS_ID"`
	// Service is the service of the evaluations; empty means the name of the evaluation.
	Service string `env:"SERVICE"`
	// Tags of new evaluations: a JSON list of objects with content, tag_class_id and tag_class_name. Empty sends none.
	Tags Tags `env:"TAGS"`
}

// Tags is a list of tags in JSON.
type Tags []Tag

// UnmarshalText implements encoding.TextUnmarshaler. An empty text is a nil list.
func (t *Tags) UnmarshalText(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		*t = nil
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var list []Tag
	if err := dec.Decode(&list); err != nil {
		return fmt.Errorf("want a JSON list of objects with content, tag_class_id and tag_class_name: %w", err)
	}
	*t = list
	return nil
}

// Place is the group, the parent and the tester of an evaluation.
type Place struct {
	TesterAccessID int64 `env:"TESTER_ACCESS_ID"`
	GroupID        int64 `env:"GROUP_ID"`
	ParentID       int64 `env:"PARENT_ID"`
}

func (p Place) complete() bool { return p.TesterAccessID != 0 && p.GroupID != 0 && p.ParentID != 0 }

// Validate reports every invalid setting. Without a URL, all settings are valid.
func (c Config) Validate() error {
	if c.URL == "" {
		return nil
	}
	errs := []error{
		extclient.CheckURL("KEB_AVS_URL", c.URL), extclient.CheckURL("KEB_AVS_TOKEN_URL", c.TokenURL),
		extclient.CheckURL("KEB_PROVISIONER_URL", c.ProvisionerURL),
	}
	for _, id := range []struct {
		variable string
		value    int64
	}{
		{"KEB_AVS_GROUP_ID", c.GroupID},
		{"KEB_AVS_PARENT_ID", c.ParentID},
		{"KEB_AVS_INTERNAL_TESTER_ACCESS_ID", c.Internal.TesterAccessID},
		{"KEB_AVS_EXTERNAL_TESTER_ACCESS_ID", c.External.TesterAccessID},
	} {
		if id.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d: want the id of the group, parent or tester of the evaluations", id.variable, id.value))
		}
	}
	errs = append(errs, service.Positive("KEB_PACE", c.RuntimeInterval))
	return errors.Join(errs...)
}
