package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// Origin is the context of an order (facts/keb.md 2.6).
type Origin struct {
	event.Context
	// ServiceManager is the JSON object sm_operator_credentials, a secret; nil when it was not sent.
	ServiceManager json.RawMessage
}

// ServiceManagerCredentials are the members of sm_operator_credentials.
type ServiceManagerCredentials struct {
	ClientID     string `json:"clientid"`
	ClientSecret string `json:"clientsecret"`
	SMURL        string `json:"sm_url"`
	URL          string `json:"url"`
	XSAppName    string `json:"xsappname"`
}

// maxMember bounds the strings of a context in bytes.
const maxMember = 512

// ParseContext reads the context of an order. The error is for the platform: it names every member that is missing or
// of a wrong type, and no values.
func ParseContext(raw json.RawMessage, platformRegion string) (Origin, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Origin{}, errors.New("context is required: an object with globalaccount_id, subaccount_id and user_id")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return Origin{}, errors.New("context must be a JSON object")
	}
	var errs []error
	read := func(name string, required bool) string {
		value, ok := members[name]
		if !ok || string(value) == "null" {
			if required {
				errs = append(errs, fmt.Errorf("context/%s is required", name))
			}
			return ""
		}
		var s string
		switch err := json.Unmarshal(value, &s); {
		case err != nil:
			errs = append(errs, fmt.Errorf("context/%s must be a string", name))
		case required && strings.TrimSpace(s) == "":
			errs = append(errs, fmt.Errorf("context/%s must not be empty", name))
		case len(s) > maxMember:
			errs = append(errs, fmt.Errorf("context/%s must be at most %d bytes", name, maxMember))
		case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }):
			errs = append(errs, fmt.Errorf("context/%s must not hold control characters", name))
		}
		return s
	}
	o := Origin{Context: event.Context{
		GlobalAccountID: read("globalaccount_id", true),
		SubaccountID:    read("subaccount_id", true),
		UserID:          strings.ToLower(read("user_id", true)),
		Platform:        read("platform", false),
		LicenseType:     read("license_type", false),
		PlatformRegion:  platformRegion,
	}}
	if sm, ok := members["sm_operator_credentials"]; ok && string(sm) != "null" {
		if err := checkServiceManager(sm); err != nil {
			errs = append(errs, err)
		}
		o.ServiceManager = sm
	}
	return o, joined(errs)
}

func checkServiceManager(raw json.RawMessage) error {
	var c ServiceManagerCredentials
	if err := json.Unmarshal(raw, &c); err != nil {
		// The decoder's error may quote a value.
		return errors.New("context/sm_operator_credentials must be an object of strings")
	}
	var missing []string
	for _, m := range []struct{ name, value string }{
		{"clientid", c.ClientID}, {"clientsecret", c.ClientSecret}, {"sm_url", c.SMURL}, {"url", c.URL},
	} {
		if m.value == "" {
			missing = append(missing, m.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("context/sm_operator_credentials lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

// joined is like errors.Join on one line.
func joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}
