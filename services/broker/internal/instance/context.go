package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// Origin is the context of an order (docs/contracts/plans.md#context).
type Origin struct {
	event.Context
	// ServiceManager is the JSON object sm_operator_credentials, a secret. It is nil if the order omits it.
	ServiceManager json.RawMessage
	// PlatformCredentials is the JSON object sm_platform_credentials, a secret. It is nil if the order omits it. Only Kyma 1 uses it, and
	// an update cannot change it.
	PlatformCredentials json.RawMessage
}

const (
	// maxContext limits a context, and maxMember each of its strings, in bytes.
	maxContext = 64 << 10
	maxMember  = 512
	// maxServiceManager limits the credentials of the Service Manager, in bytes. The Reconciler limits a whole request to 100,000 bytes.
	maxServiceManager = 8 << 10
)

// ParseContext parses the context of an order. The error is for the platform: it lists every missing member and every member of a
// wrong type, without values.
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

// ContextChange is the context of an update (docs/contracts/broker.md#updates). Omitted members keep their values. Other members
// are ignored: only the order sets the user, the subaccount and the platform.
type ContextChange struct {
	// GlobalAccountID and LicenseType are empty if omitted.
	GlobalAccountID, LicenseType string
	// Active requests (true) or removes (false) the runtime of a trial. It is nil if omitted.
	Active *bool
	// ServiceManager has the meaning of Origin.ServiceManager.
	ServiceManager json.RawMessage
}

// ParseContextChange parses the context of an update, which may be absent. The error is like that of ParseContext.
func ParseContextChange(raw json.RawMessage) (ContextChange, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return ContextChange{}, nil
	}
	m, err := readContext(raw)
	if err != nil {
		return ContextChange{}, err
	}
	// Members that the order sets may be repeated, but must be valid.
	m.id("subaccount_id", false)
	c := ContextChange{
		GlobalAccountID: m.id("globalaccount_id", false), LicenseType: m.text("license_type", false),
		Active: m.flag("active"), ServiceManager: m.serviceManager(),
	}
	return c, joined(m.errs)
}

// contextMembers decodes the members of a context and collects the errors.
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

// member returns a member. A null member counts as missing.
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

// id returns a text that is used as a Kubernetes label.
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

// checkPlatform validates the structure of sm_platform_credentials (docs/contracts/btp.md#credentials).
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
		// The decoder's error can contain a value.
		return errors.New("context/sm_platform_credentials must be an object with url and credentials")
	}
	basic := c.Credentials.Basic
	return lacks(event.CredentialsPlatform, [][2]string{
		{"url", c.URL}, {"credentials.basic.username", basic.Username}, {"credentials.basic.password", basic.Password},
	})
}

// lacks returns an error with the names of the members without a value.
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

// SameServiceManager reports whether two sm_operator_credentials objects contain the same credentials.
func SameServiceManager(a, b json.RawMessage) bool {
	var x, y event.ServiceManagerCredentials
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

func checkServiceManager(raw json.RawMessage) error {
	var c event.ServiceManagerCredentials
	if err := json.Unmarshal(raw, &c); err != nil {
		// The decoder's error can contain a value.
		return errors.New("context/sm_operator_credentials must be an object of strings")
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("context/%w", err)
	}
	return nil
}

// joined is like errors.Join, but on one line.
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
