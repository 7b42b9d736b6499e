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
	// PlatformCredentials is the JSON object sm_platform_credentials, a secret; nil when it was not sent. Only Kyma 1 uses it, and only an
	// order can bring it.
	PlatformCredentials json.RawMessage
}

// ServiceManagerCredentials are the members of sm_operator_credentials.
type ServiceManagerCredentials struct {
	ClientID     string `json:"clientid"`
	ClientSecret string `json:"clientsecret"`
	SMURL        string `json:"sm_url"`
	URL          string `json:"url"`
	XSAppName    string `json:"xsappname"`
}

const (
	// maxContext bounds a context, and maxMember each of its strings, in bytes.
	maxContext = 64 << 10
	maxMember  = 512
	// maxServiceManager bounds the credentials of the Service Manager, in bytes: the Reconciler takes 100,000 bytes with everything else.
	maxServiceManager = 8 << 10
)

// ParseContext reads the context of an order. The error is for the platform: it names every member that is missing or
// of a wrong type, and no values.
func ParseContext(raw json.RawMessage, platformRegion string) (Origin, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Origin{}, errors.New("context is required: an object with globalaccount_id, subaccount_id and user_id")
	}
	m, err := readContext(raw)
	if err != nil {
		return Origin{}, err
	}
	o := Origin{Context: event.Context{
		GlobalAccountID: m.id("globalaccount_id", true),
		SubaccountID:    m.id("subaccount_id", true),
		UserID:          strings.ToLower(m.text("user_id", true)),
		Platform:        m.text("platform", false),
		LicenseType:     m.text("license_type", false),
		PlatformRegion:  platformRegion,
	}}
	o.ServiceManager, o.PlatformCredentials = m.serviceManager(), m.platform()
	return o, joined(m.errs)
}

// ContextChange is the context of an update (facts/keb.md 1.7). What is not in it stays as it is, and so does whatever
// else a platform sends: who has ordered the instance, in which subaccount and on which platform is settled by the order.
type ContextChange struct {
	// GlobalAccountID and LicenseType are empty when they were not sent.
	GlobalAccountID, LicenseType string
	// Active is whether a trial is to have its runtime; nil when it was not sent.
	Active *bool
	// ServiceManager is as in Origin.
	ServiceManager json.RawMessage
}

// ParseContextChange reads the context of an update, which may be absent. The error is as that of ParseContext.
func ParseContextChange(raw json.RawMessage) (ContextChange, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return ContextChange{}, nil
	}
	m, err := readContext(raw)
	if err != nil {
		return ContextChange{}, err
	}
	// What is settled by the order may be repeated, but not be wrong.
	m.id("subaccount_id", false)
	c := ContextChange{
		GlobalAccountID: m.id("globalaccount_id", false), LicenseType: m.text("license_type", false),
		Active: m.flag("active"), ServiceManager: m.serviceManager(),
	}
	return c, joined(m.errs)
}

// contextMembers reads the members of a context, and collects what is wrong with them.
type contextMembers struct {
	raw  map[string]json.RawMessage
	errs []error
}

func readContext(raw json.RawMessage) (*contextMembers, error) {
	if len(raw) > maxContext {
		return nil, fmt.Errorf("context must be at most %d bytes", maxContext)
	}
	var m contextMembers
	if err := json.Unmarshal(raw, &m.raw); err != nil || m.raw == nil {
		return nil, errors.New("context must be a JSON object")
	}
	return &m, nil
}

func (m *contextMembers) wrong(name, format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf("context/%s "+format, append([]any{name}, args...)...))
}

// member is a member that was sent; null was not.
func (m *contextMembers) member(name string) (json.RawMessage, bool) {
	value, ok := m.raw[name]
	return value, ok && string(value) != "null"
}

func (m *contextMembers) text(name string, required bool) string {
	value, ok := m.member(name)
	if !ok {
		if required {
			m.wrong(name, "is required")
		}
		return ""
	}
	var s string
	switch err := json.Unmarshal(value, &s); {
	case err != nil:
		m.wrong(name, "must be a string")
	case required && strings.TrimSpace(s) == "":
		m.wrong(name, "must not be empty")
	case len(s) > maxMember:
		m.wrong(name, "must be at most %d bytes", maxMember)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }):
		m.wrong(name, "must not hold control characters")
	}
	return s
}

// id is a text that becomes a Kubernetes label.
func (m *contextMembers) id(name string, required bool) string {
	errs := len(m.errs)
	s := strings.TrimSpace(m.text(name, required))
	if s == "" || len(m.errs) > errs {
		return s
	}
	if err := CheckLabel("context/"+name, s); err != nil {
		m.errs = append(m.errs, err)
	}
	return s
}

func (m *contextMembers) flag(name string) *bool {
	value, ok := m.member(name)
	if !ok {
		return nil
	}
	var b bool
	if json.Unmarshal(value, &b) != nil {
		m.wrong(name, "must be true or false")
	}
	return &b
}

func (m *contextMembers) serviceManager() json.RawMessage {
	return m.credentials(event.CredentialsServiceManager, checkServiceManager)
}

func (m *contextMembers) platform() json.RawMessage {
	return m.credentials(event.CredentialsPlatform, checkPlatform)
}

func (m *contextMembers) credentials(name string, check func(json.RawMessage) error) json.RawMessage {
	value, ok := m.member(name)
	if !ok {
		return nil
	}
	if len(value) > maxServiceManager {
		m.wrong(name, "must be at most %d bytes", maxServiceManager)
	} else if err := check(value); err != nil {
		m.errs = append(m.errs, err)
	}
	return value
}

// checkPlatform checks the shape of sm_platform_credentials (facts/contracts.md 4).
func checkPlatform(raw json.RawMessage) error {
	var c struct {
		URL         string `json:"url"`
		Credentials struct {
			Basic struct {
				Username string `json:"username"`
				Password string `json:"password"`
			} `json:"basic"`
		} `json:"credentials"`
	}
	if json.Unmarshal(raw, &c) != nil {
		// The decoder's error may quote a value.
		return errors.New("context/sm_platform_credentials must be an object with url and credentials")
	}
	basic := c.Credentials.Basic
	return lacks(event.CredentialsPlatform, [][2]string{
		{"url", c.URL}, {"credentials.basic.username", basic.Username}, {"credentials.basic.password", basic.Password},
	})
}

// lacks returns an error that names the members without a value.
func lacks(object string, members [][2]string) error {
	var missing []string
	for _, m := range members {
		if m[1] == "" {
			missing = append(missing, m[0])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("context/%s lacks %s", object, strings.Join(missing, ", "))
}

// SameServiceManager tells whether two sm_operator_credentials objects hold the same credentials.
func SameServiceManager(a, b json.RawMessage) bool {
	var x, y ServiceManagerCredentials
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

func checkServiceManager(raw json.RawMessage) error {
	var c ServiceManagerCredentials
	if err := json.Unmarshal(raw, &c); err != nil {
		// The decoder's error may quote a value.
		return errors.New("context/sm_operator_credentials must be an object of strings")
	}
	return lacks(event.CredentialsServiceManager, [][2]string{
		{"clientid", c.ClientID}, {"clientsecret", c.ClientSecret}, {"sm_url", c.SMURL}, {"url", c.URL},
	})
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
